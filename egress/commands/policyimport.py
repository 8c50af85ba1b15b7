"""`egress policy import`: another tool's policy files as one of ours, to read, keep and change."""

from __future__ import annotations

import argparse

from egress import foreign, policysources
from egress.commands.paper import visible
from egress.commands.say import Failure, say
from egress.foreign.recognise import Format
from egress.foreign.render import render
from egress.foreign.settings import under
from egress.foreign.translation import Severity, Translation
from egress.policyfile import read_root, translated
from egress.policytree import Pairs
from egress.problems import PolicyError

_NO_POLICY = 1


def add(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = actions.add_parser(
        "import",
        help="another tool's policy, as one of ours",
        description="Another tool's policy files as one of ours, with a comment for each setting that could not be"
        f" carried over. Known by their content: {', '.join(Format)}."
        " They need no import to be used: --policy FILE reads them as they are."
        " Exit status: 0 imported, 1 not, for reasons on stderr.",
        epilog="example:\n  egress policy import .claude/settings.json --as agent > agent.yaml",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", metavar="FILE", nargs="+")
    parser.add_argument("--as", dest="name", metavar="NAME", help="what a persona is called that has no name there")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    made = [(file, _translation(file, args.name)) for file in args.files]
    try:
        for file, translation in made:
            _tell(translation)
            translated(translation, file)
    except PolicyError as error:
        for problem in error.problems:
            say(f"error: {visible(str(problem))}")
        say(
            "hint: change it there, or leave it out and write that part by hand; docs/importing.md says what is carried"
        )
        return _NO_POLICY
    _refuse_namesakes([translation for _, translation in made])
    print(render([translation for _, translation in made]), end="")
    return 0


def _translation(file: str, name: str | None) -> Translation:
    try:
        made = foreign.translate(read_root(policysources.text_of(file), file), file, name)
    except PolicyError as error:
        raise Failure(str(error), "it must be one of: " + ", ".join(Format), _NO_POLICY) from None
    if made is None:
        known = ", ".join(Format)
        raise Failure(f"{file} is in no format that is known here", f"it must be one of: {known}", _NO_POLICY)
    return made


def _tell(translation: Translation) -> None:
    for remark in translation.remarks:
        if remark.severity is not Severity.ERROR:
            say(f"{remark.severity}: {visible(str(remark))}")


def _refuse_namesakes(translations: list[Translation]) -> None:
    seen: dict[str, str] = {}
    for made in translations:
        for name in _names(made):
            if name in seen:
                message = f"persona {name!r} is in {seen[name]} and in {made.root.source.file}"
                raise Failure(message, "import them one by one, with --as NAME", _NO_POLICY)
            seen[name] = made.root.source.file


def _names(made: Translation) -> list[str]:
    personas = under(made.root, "personas")
    return [key.text for key, _ in personas.pairs] if isinstance(personas, Pairs) else []
