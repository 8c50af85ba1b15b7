"""The gate: a filtering HTTP, CONNECT and SOCKS5 proxy with a policy per persona."""

__version__ = "0.1.0"
