"""A look into requests: TLS opened with mitmproxy, in a process of its own, for the hosts whose rules need it."""
