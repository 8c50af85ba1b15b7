"""The argument list, read as the security model that it is."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from launcher.bwrap import Descriptors, arguments, command_line, packed
from launcher.explain import explain, quote, shell_line
from launcher.mounts import Kind, Mount, PlanError
from launcher.plan import Placeholder, Plan

ROOT = Mount(Kind.READ, "/", "programs")
NONE = Descriptors()


def make(*mounts: Mount, **fields: object) -> Plan:
    values = {
        "env": {"HOME": "/home/me", "TOKEN": "hunter2"},
        "passed": frozenset({"TOKEN"}),
        "directory": "/work",
        "command": ("claude", "--bind", "it's"),
        "new_session": True,
    }
    return Plan(mounts=(ROOT, *mounts), **(values | fields))  # type: ignore[arg-type]


def options(*mounts: Mount, fds: Descriptors = NONE) -> str:
    """The words for these mounts alone."""
    bare = arguments(make(env={}), Descriptors())
    words = arguments(make(*mounts, env={}), fds)
    start = bare.index("--ro-bind") + 3
    return " ".join(words[start : len(words) - len(bare) + start])


def test_a_sandbox_shares_nothing_and_may_do_nothing() -> None:
    words = arguments(make(), Descriptors())
    assert words[: words.index("--hostname")] == [
        *("--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL", "--die-with-parent"),
    ]
    assert not {"--share-net", "--cap-add", "--dev-bind", "--userns", "--unshare-user-try"} & set(words)


@pytest.mark.parametrize(
    ("mount", "words"),
    [
        (Mount(Kind.READ, "/a", ""), "--ro-bind /a /a"),
        (Mount(Kind.WRITE, "/a", ""), "--bind /a /a"),
        (Mount(Kind.EMPTY, "/a", ""), "--perms 0555 --tmpfs /a"),
        (Mount(Kind.SCRATCH, "/tmp", ""), "--perms 1777 --tmpfs /tmp"),
        (Mount(Kind.SCRATCH, "/home/me", ""), "--perms 0700 --tmpfs /home/me"),
        (Mount(Kind.CLOSED, "/a", ""), "--ro-bind /dev/null /a"),
        (Mount(Kind.LINK, "/a", "", text="b"), "--symlink b /a"),
        (Mount(Kind.DEVICES, "/dev", ""), "--dev /dev"),
        (Mount(Kind.PROCESSES, "/proc", ""), "--proc /proc"),
    ],
)
def test_a_mount_becomes_an_option(mount: Mount, words: str) -> None:
    assert options(mount) == words


def test_every_kind_of_mount_has_its_option() -> None:
    for kind in Kind:
        assert options(Mount(kind, "/a", "", text="x"), fds=Descriptors(data={"/a": 3}))


def test_a_text_is_carried_by_a_descriptor() -> None:
    text = Mount(Kind.TEXT, "/etc/hosts", "", text="x")
    assert options(text, fds=Descriptors(data={"/etc/hosts": 7})) == "--perms 0444 --ro-bind-data 7 /etc/hosts"


def test_what_lies_in_the_project_is_bound_by_descriptor_where_there_is_one() -> None:
    read = Mount(Kind.READ, "/p/.env", "", beneath="/p")
    pin = Mount(Kind.WRITE, "/p/.git", "", beneath="/p")
    fds = Descriptors(binds={"/p/.env": 5, "/p/.git": 6})
    assert options(read, pin, fds=fds) == "--ro-bind-fd 5 /p/.env --bind-fd 6 /p/.git"
    assert options(read, pin) == "--ro-bind /p/.env /p/.env --bind /p/.git /p/.git"


def test_mounts_keep_their_order() -> None:
    hide, give = Mount(Kind.EMPTY, "/home", ""), Mount(Kind.WRITE, "/home/me/p", "")
    assert options(hide, give) == "--perms 0555 --tmpfs /home --bind /home/me/p /home/me/p"


def test_the_environment_is_cleared_before_anything_is_set() -> None:
    words = arguments(make(), Descriptors())
    assert words.count("--clearenv") == 1
    assert words.index("--clearenv") < words.index("--setenv")
    assert words[words.index("TOKEN") + 1] == "hunter2"


def test_a_new_session_is_made_unless_the_terminal_is_ours() -> None:
    assert "--new-session" in arguments(make(), Descriptors())
    assert "--new-session" not in arguments(make(new_session=False), Descriptors())


def test_descriptors_for_control_come_last() -> None:
    fds = Descriptors(info=3, status=4, block=0, seccomp=(8, 9))
    control = ["--info-fd", "3", "--json-status-fd", "4", "--block-fd", "0"]
    assert arguments(make(), fds)[-10:] == [*control, "--add-seccomp-fd", "8", "--add-seccomp-fd", "9"]


def test_all_descriptors_are_told() -> None:
    fds = Descriptors(data={"/a": 3}, binds={"/b": 4}, info=5, block=6, status=7, seccomp=(8, 9))
    assert sorted(fds.all) == [3, 4, 5, 6, 7, 8, 9]
    assert Descriptors().all == ()


def test_only_the_command_is_on_the_command_line() -> None:
    line = command_line("/usr/bin/bwrap", 9, make())
    assert line == ["/usr/bin/bwrap", "--args", "9", "--", "claude", "--bind", "it's"]


def test_the_list_is_packed_word_by_word() -> None:
    assert packed(["--bind", "/caf\udce9", ""]) == b"--bind\0/caf\xe9\0\0"
    with pytest.raises(PlanError, match="NUL"):
        packed(["--setenv", "A", "x\0--bind"])


def test_the_shell_line_shows_no_secret_and_is_whole() -> None:
    text = Mount(Kind.TEXT, "/etc/hosts", "", text="it's\n")
    line = shell_line(make(text))
    assert "hunter2" not in line
    assert '--setenv TOKEN "$TOKEN"' in line
    assert line.endswith("""-- claude --bind 'it'"'"'s' 10< <(printf %s 'it'"'"'s\n')""")
    assert shlex.split(line)[:2] == ["bwrap", "--unshare-all"]


def test_the_shell_line_gives_bwrap_the_same_words() -> None:
    plan = make(Mount(Kind.TEXT, "/etc/hosts", "", text="x"), env={"A": "a b", "TOKEN": "t"})
    printer = "bwrap() { printf '%s\\0' \"$@\"; cat <&10; }; "
    done = subprocess.run(
        ["bash", "-c", printer + shell_line(plan)], env={"TOKEN": "t"}, stdout=subprocess.PIPE, text=True, check=True
    )
    words = [*arguments(plan, Descriptors(data={"/etc/hosts": 10})), "--", *plan.command]
    assert done.stdout == "".join(f"{word}\0" for word in words) + "x"


@pytest.mark.parametrize("word", ["", "a b", "it's", "$HOME", "`id`", "a\nb", "é", "*", "~", "plain-1.2:/x"])
def test_a_quoted_word_is_one_word_to_the_shell(word: str) -> None:
    done = subprocess.run(["bash", "-c", f"printf %s {quote(word)}"], stdout=subprocess.PIPE, check=True)
    assert done.stdout.decode() == word


def test_an_explanation_names_every_mount_with_its_reason() -> None:
    text = explain(
        make(
            Mount(Kind.WRITE, "/home/me/p", "the project"),
            Mount(Kind.LINK, "/home/me/bin", "as on the host", text="p/bin"),
            placeholders=(Placeholder("/home/me/p", ".env"), Placeholder("/home/me/p", ".vscode", is_dir=True)),
            notes=("something to know",),
            warnings=("something to fear",),
        )
    )
    rows = [line.split(maxsplit=2) for line in text.splitlines()]
    assert ["writable", "~/p", "the project"] in rows
    assert ["link", "~/bin", "-> p/bin  as on the host"] in rows
    assert "  /home/me/p/.env\n  /home/me/p/.vscode/\n" in text
    assert "notes\n  something to know\nwarnings\n  something to fear\n" in text
    assert "  claude --bind 'it'\"'\"'s'\n  in /work\n" in text


def test_an_explanation_tells_which_variables_are_passed_but_not_what_they_are() -> None:
    text = explain(make())
    assert "TOKEN=(passed)" in text
    assert "HOME=/home/me" in text
    assert "hunter2" not in text
