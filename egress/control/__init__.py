"""What people see of a running gate and decide about it: the live page, the socket of `egress watch`, and metrics."""
