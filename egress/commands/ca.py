"""`egress ca`: the authority for a gate that stands alone, to be trusted by the programs that use it."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from typing import TYPE_CHECKING

from egress.commands.say import Failure, say

if TYPE_CHECKING:
    from egress.inspection.kept import Kept


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "ca",
        help="print the certificate that programs behind `egress proxy` have to trust",
        description="Print the certificate of the authority that `egress proxy` inspects with, made on first use and "
        "valid for a year. Sandboxes of egress-launch do not need it: each has its own, and trusts it already.",
        epilog="example:\n  egress ca > egress.pem\n  egress ca --path",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--path", action="store_true", help="print where the certificate is, instead")
    parser.add_argument("--renew", action="store_true", help="make a new one; whoever trusts the old one must be told")
    parser.set_defaults(run=run)


def kept() -> tuple[bytes, bytes]:
    """Its key and certificate."""
    authority = _keep().authority
    return authority.key_pem, authority.certificate_pem


def path() -> str:
    return _keep().path


def _keep(renew: bool = False) -> Kept:
    from egress.inspection.kept import KeptError, keep

    try:
        return keep(os.environ, renew=renew)
    except KeptError as error:
        raise Failure(str(error), error.hint) from None


def run(args: argparse.Namespace) -> int:
    found = _keep(args.renew)
    if args.path:
        print(found.path)
        return 0
    sys.stdout.write(found.authority.certificate_pem.decode("ascii"))
    _advise(shlex.quote(found.path), found.authority.until)
    return 0


def _advise(path: str, until: int) -> None:
    day = time.strftime("%Y-%m-%d", time.gmtime(until))
    say(
        f"valid until {day}, and for any host: policies change, so this authority is not bound to names\n"
        f"whoever has its key can pretend to be any server to those who trust it; the key stays beside {path}\n"
        f"curl --cacert {path} …\n"
        f"export NODE_EXTRA_CA_CERTS={path}\n"
        f"for the whole system, where it is Debian's: cp {path} /usr/local/share/ca-certificates/egress.crt"
        " && update-ca-certificates"
    )
