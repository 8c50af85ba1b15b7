"""What `egress doctor` looks at, one function each, which returns what it found."""
