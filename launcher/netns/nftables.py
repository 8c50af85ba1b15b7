"""nftables as the kernel speaks it: tables, chains and rules as netlink messages.

A rule is a row of steps, and each step is kept twice: in nft's words, for people and for a test that
gives the words to nft and compares, and as the kernel's expressions, small instructions over registers
(linux/netfilter/nf_tables.h). Only what the sandbox needs is here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from egress.record import NamedTuple
from launcher.netns.netlink import ACK, APPEND, CREATE, Attribute, Message, decode, holds, nested, number, text

TCP, UDP = 6, 17
_INET = 1  # both families in one table
_SUBSYSTEM = 10
_BATCH_BEGIN, _BATCH_END = 0x10, 0x11
_NEW_TABLE, _GET_TABLE, _DELETE_TABLE = (_SUBSYSTEM << 8 | kind for kind in (0, 1, 2))
_NEW_CHAIN, _GET_CHAIN, _NEW_RULE, _GET_RULE = (_SUBSYSTEM << 8 | kind for kind in (3, 4, 6, 7))
_TABLE_NAME = 1
_HOOKS = {"input": 1, "output": 3}
_ACCEPT = 1
_RULE_TABLE, _RULE_CHAIN, _RULE_EXPRESSIONS = 1, 2, 4
_REGISTER, _VERDICT_REGISTER = 1, 0
_NETWORK, _TRANSPORT = 1, 2  # headers that a payload is taken from


class Expression(NamedTuple):
    name: str
    attributes: tuple[Attribute, ...]


class Step(NamedTuple):
    words: str
    expressions: tuple[Expression, ...]


Rule = tuple[Step, ...]


class Chain(NamedTuple):
    name: str
    kind: str
    hook: str
    priority: int
    rules: tuple[Rule, ...]


class Table(NamedTuple):
    name: str
    chains: tuple[Chain, ...]


def _meta(key: int) -> Expression:
    return Expression("meta", (number(1, _REGISTER), number(2, key)))


def _payload(header: int, offset: int, length: int) -> Expression:
    return Expression("payload", (number(1, _REGISTER), number(2, header), number(3, offset), number(4, length)))


def _equals(value: bytes) -> Expression:
    return Expression("cmp", (number(1, _REGISTER), number(2, 0), nested(3, Attribute(1, value))))


_IS_IPV4 = (_meta(15), _equals(b"\x02"))

# Steps that match.


def protocol(name: str, port: int | None = None) -> Step:
    is_protocol = (_meta(16), _equals(bytes([{"tcp": TCP, "udp": UDP}[name]])))
    if port is None:
        return Step(f"meta l4proto {name}", is_protocol)
    return Step(f"{name} dport {port}", (*is_protocol, _payload(_TRANSPORT, 2, 2), _equals(port.to_bytes(2, "big"))))


def to_loopback(family: int) -> Step:
    """127.0.0.0/8 is one byte to look at; ::1 is all sixteen."""
    if family == 4:
        return Step("ip daddr 127.0.0.0/8", (*_IS_IPV4, _payload(_NETWORK, 16, 1), _equals(b"\x7f")))
    localhost = bytes(15) + b"\x01"
    return Step("ip6 daddr ::1", (_meta(15), _equals(b"\x0a"), _payload(_NETWORK, 24, 16), _equals(localhost)))


def to_address(ip: bytes) -> Step:
    return Step(f"ip daddr {'.'.join(map(str, ip))}", (*_IS_IPV4, _payload(_NETWORK, 16, 4), _equals(ip)))


def is_reply() -> Step:
    direction = Expression("ct", (number(1, _REGISTER), number(2, 1)))
    return Step("ct direction reply", (direction, _equals(b"\x01")))


def at_most(per_second: int, burst: int) -> Step:
    numbers = (number(1, per_second, 8), number(2, 1, 8), number(3, burst))
    return Step(f"limit rate {per_second}/second burst {burst} packets", (Expression("limit", numbers),))


# Steps that act.


def accept() -> Step:
    verdict = nested(2, nested(2, number(1, _ACCEPT)))
    return Step("accept", (Expression("immediate", (number(1, _VERDICT_REGISTER), verdict)),))


def redirect(port: int) -> Step:
    load = Expression("immediate", (number(1, _REGISTER), nested(2, Attribute(1, port.to_bytes(2, "big")))))
    return Step(f"redirect to :{port}", (load, Expression("redir", (number(1, _REGISTER), number(2, _REGISTER)))))


def log(group: int) -> Step:
    return Step(f"log group {group}", (Expression("log", (number(1, group, 2),)),))


def reject(code: str) -> Step:
    """With the ICMP error of the packet's own family."""
    number_of = {"port-unreachable": 1, "admin-prohibited": 3}[code]
    expression = Expression("reject", (number(1, 2), number(2, number_of, 1)))
    return Step(f"reject with icmpx type {code}", (expression,))


# A table in nft's words, as messages, and against what the kernel reads back.


def script(table: Table) -> str:
    """What one would give to `nft -f`."""
    return "".join(_script(table))


def _script(table: Table) -> Iterator[str]:
    yield f"table inet {table.name} {{\n"
    for chain in table.chains:
        yield f"\tchain {chain.name} {{\n"
        yield f"\t\ttype {chain.kind} hook {chain.hook} priority {chain.priority}; policy accept;\n"
        yield from (f"\t\t{' '.join(step.words for step in rule)}\n" for rule in chain.rules)
        yield "\t}\n"
    yield "}\n"


def batch(table: Table) -> tuple[Message, ...]:
    """All of it or, when the kernel refuses any part, nothing."""
    chains = (_message(_NEW_CHAIN, _chain(table, chain)) for chain in table.chains)
    rules = (_message(_NEW_RULE, _rule(table, chain, rule)) for chain in table.chains for rule in chain.rules)
    return _together(_message(_NEW_TABLE, (text(_TABLE_NAME, table.name),)), *chains, *rules)


def removal(name: str) -> tuple[Message, ...]:
    """A table goes with all that is in it."""
    return _together(Message(_DELETE_TABLE, _head(_INET), (text(_TABLE_NAME, name),)))


def _together(*messages: Message) -> tuple[Message, ...]:
    edge = _head(0, _SUBSYSTEM)
    return (Message(_BATCH_BEGIN, edge, flags=0), *messages, Message(_BATCH_END, edge, flags=0))


def table_names(bodies: Iterable[bytes]) -> Iterator[str]:
    for body in bodies:
        yield dict(decode(body[4:])).get(_TABLE_NAME, b"").rstrip(b"\0").decode(errors="replace")


GET_TABLES = Message(_GET_TABLE, bytes(4))
GET_CHAINS = Message(_GET_CHAIN, bytes(4))  # of every family: there must be nobody else's
GET_RULES = Message(_GET_RULE, bytes(4))


def differences(table: Table, chains: Sequence[bytes], rules: Sequence[bytes]) -> Iterator[str]:
    """Where the kernel's chains and rules are not exactly this table's."""
    wanted_chains = [_chain(table, chain) for chain in table.chains]
    wanted_rules = [(chain.name, rule) for chain in table.chains for rule in chain.rules]
    if len(chains) != len(wanted_chains) or len(rules) != len(wanted_rules):
        yield f"{len(chains)} chains with {len(rules)} rules, not {len(wanted_chains)} with {len(wanted_rules)}"
        return
    for chain, said in zip(table.chains, wanted_chains, strict=True):
        if not any(_is_ours(body) and holds(body[4:], said) for body in chains):
            yield f"chain {chain.name} is not as it was written"
    for (name, rule), body in zip(wanted_rules, rules, strict=True):
        if not (_is_ours(body) and _is_rule(table, name, rule, dict(decode(body[4:])))):
            yield f"chain {name}: a rule is not {' '.join(step.words for step in rule)!r}"


def _is_ours(body: bytes) -> bool:
    return body[0] == _INET


def _is_rule(table: Table, chain: str, rule: Rule, there: dict[int, bytes]) -> bool:
    place = (there.get(_RULE_TABLE), there.get(_RULE_CHAIN))
    wanted = [expression for step in rule for expression in step.expressions]
    found = [value for _, value in decode(there.get(_RULE_EXPRESSIONS, b""))]
    return (
        place == (text(0, table.name).value, text(0, chain).value)
        and len(found) == len(wanted)
        and all(holds(value, _expression(said)) for value, said in zip(found, wanted, strict=True))
    )


def _chain(table: Table, chain: Chain) -> tuple[Attribute, ...]:
    hook = nested(4, number(1, _HOOKS[chain.hook]), number(2, chain.priority))
    return (text(1, table.name), text(3, chain.name), hook, number(5, _ACCEPT), text(7, chain.kind))


def _rule(table: Table, chain: Chain, rule: Rule) -> tuple[Attribute, ...]:
    expressions = (nested(1, *_expression(expression)) for step in rule for expression in step.expressions)
    return (text(_RULE_TABLE, table.name), text(_RULE_CHAIN, chain.name), nested(_RULE_EXPRESSIONS, *expressions))


def _expression(expression: Expression) -> tuple[Attribute, ...]:
    return (text(1, expression.name), nested(2, *expression.attributes))


def _message(kind: int, attributes: Iterable[Attribute]) -> Message:
    return Message(kind, _head(_INET), tuple(attributes), CREATE | APPEND | ACK)


def _head(family: int, resource: int = 0) -> bytes:
    return bytes([family, 0]) + resource.to_bytes(2, "big")
