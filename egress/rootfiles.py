"""Where distributions keep the authorities that their programs trust.

One table for both sides: on the host the first of these that exists is read, and inside, each that exists
is covered by ours. They are often links to each other.
"""

from __future__ import annotations

# PEM, all authorities in one file.
BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Arch, Alpine, Gentoo, NixOS
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  # Fedora, RHEL
    "/etc/pki/tls/certs/ca-bundle.crt",  # the same, by an older name
    "/etc/pki/tls/cert.pem",
    "/var/lib/ca-certificates/ca-bundle.pem",  # SUSE
    "/etc/ssl/ca-bundle.pem",
    "/etc/ca-certificates/extracted/tls-ca-bundle.pem",  # Arch
    "/etc/ssl/cert.pem",  # OpenSSL's own name for it, by where it was built to look
    "/usr/lib/ssl/cert.pem",
    "/usr/local/ssl/cert.pem",
    "/etc/ssl/certs/ca-bundle.crt",  # NixOS
)

# For Java, which reads nothing else.
STORES = (
    "/etc/ssl/certs/java/cacerts",  # Debian, Ubuntu, Arch, Alpine
    "/etc/pki/ca-trust/extracted/java/cacerts",  # Fedora, RHEL
    "/etc/pki/java/cacerts",
    "/var/lib/ca-certificates/java-cacerts",  # SUSE
)
