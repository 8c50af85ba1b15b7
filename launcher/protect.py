"""Files in the project that must not change: which, and what is promised of them.

The project is writable, but some names in it have power outside of it. A program on the host acts on them
without being asked (git on its hooks, an editor on its tasks, an agent on its settings), so whoever writes
them leaves the sandbox at the next prompt. Others hold secrets that a run must not replace.

    .git/hooks    a path: read-only where it exists, and where it does not it cannot be created
    .vscode/      the same; the slash says what is missing is a directory
    .env          a name without a slash: that, and also every file of this name that exists further down
    *.pem         a pattern (* and ?): every match that exists. A new match is the sandbox's own content.

A path is held by a mount on it, and its parents by mounts onto themselves: the kernel refuses to rename or
remove a mount point (EBUSY), so a directory cannot be moved aside to put another in its place. Matches
further down are mounts too, but their parents are not: the content is kept, while the directory around it
may move. Not so around a repository: git looks for it by its path, and would find another one there. Links
across mounts fail (EXDEV), so a hard link leads nowhere; so does a rename, where programs copy instead.

What does not exist has no place for a mount, and the kernel has no other way to forbid a name: Landlock
and seccomp cannot tell `.env` from `notes.txt`, and an overlay with the project as its upper layer leaves
its marks in it. So a placeholder stands there during the run, which nothing on the host can open, either;
`launcher.placeholders` tells how it is made sure that none stays.

What this cannot do. A file that the host itself replaces during the run (an editor that saves by renaming,
`git config`) takes the mount away with the old file, and the new one is as writable as the rest: to put a
mount on it from outside one would have to follow paths that the sandbox can change meanwhile. A second
name that a file had before the run (a hard link) stays as it was. A repository that the sandbox makes in a
directory of the project has hooks of its own: `launcher.aftermath` tells of it.
"""

from __future__ import annotations

import stat

from egress.record import NamedTuple


class Guard(NamedTuple):
    path: str  # below the directory that it is for; a trailing slash: a directory
    why: str
    stand_in: str = ""  # what a placeholder says, where one without content would break the reader
    inside: str = ""  # what is read inside, where something that cannot be opened would break the reader
    hold: bool = True  # also where it is missing
    hide: bool = False  # not even to be read


class Found(NamedTuple):
    """A guard and what is there now. `path` is its first part that is missing, if any is."""

    root: str
    path: str
    guard: Guard
    missing: bool
    is_dir: bool
    loose: int = 0  # how many of its parents, from the root on, may be moved

    @property
    def where(self) -> str:
        return f"{self.root}/{self.path}"

    @property
    def pins(self) -> list[str]:
        """The directories on the way that must stay where they are."""
        parents = self.path.split("/")[:-1]
        return [f"{self.root}/{'/'.join(parents[:count])}" for count in range(self.loose + 1, len(parents) + 1)]


# In the project. Where there are more matches than mounts to spare the first rows come first, so the pattern
# that others' files match most is the last. Not here: .gitmodules and .gitattributes, which only name what
# git's own configuration must allow; package.json, Makefiles and tests, which run when someone runs them; nor
# what agents only read, as rules, steering and specifications, which are content of the project like others.
_SETTINGS = "what the agent may do, and programs it runs"
_SERVERS = "agents start the servers it names"
_TASKS = "editors run its tasks and the programs it names"
_INSTRUCTIONS = "instructions to agents outside, and what they may run"
_START_UP = "an editor set up for it runs it on entering the directory"
PROJECT = (
    Guard(".env", "settings and secrets of the application"),
    Guard(".env.*", "settings and secrets of the application"),
    Guard("*.key", "private keys"),
    Guard(".envrc", "direnv runs it on entering the directory"),
    Guard(".vscode/", _TASKS),
    Guard(".idea/", _TASKS),
    Guard(".mcp.json", _SERVERS),
    Guard(".claude/settings.json", "what the agent may do, and hooks it runs", inside="{}\n"),
    Guard(".claude/settings.local.json", "what the agent may do, and hooks it runs", inside="{}\n"),
    Guard(".claude/hooks/", "programs that the agent runs"),
    Guard(".claude/agents/", _INSTRUCTIONS),
    Guard(".claude/commands/", _INSTRUCTIONS),
    Guard(".claude/skills/", _INSTRUCTIONS),
    Guard(".cursor/mcp.json", _SERVERS, inside="{}\n"),
    Guard(".cursor/hooks.json", _SETTINGS, inside="{}\n"),
    Guard(".cursor/hooks/", "programs that the agent runs"),
    Guard(".cursor/cli.json", _SETTINGS, inside="{}\n"),
    Guard(".cursor/worktrees.json", "programs that the agent runs", inside="{}\n"),
    Guard(".cursor/agents/", _INSTRUCTIONS),
    Guard(".cursor/commands/", _INSTRUCTIONS),
    Guard(".cursor/skills/", _INSTRUCTIONS),
    Guard(".codex/", _SETTINGS),
    Guard(".gemini/", _SETTINGS),
    Guard(".opencode/", _SETTINGS),
    Guard("opencode.json", _SETTINGS, inside="{}\n"),
    Guard("opencode.jsonc", _SETTINGS, inside="{}\n"),
    Guard(".kiro/settings/", _SERVERS),
    Guard(".kiro/hooks/", "programs that the agent runs"),
    Guard(".kiro/agents/", _INSTRUCTIONS),
    Guard(".kiro/skills/", _INSTRUCTIONS),
    Guard(".windsurf/hooks.json", _SETTINGS, inside="{}\n"),
    Guard(".zed/", _TASKS),
    Guard("*.code-workspace", _TASKS),
    Guard(".devcontainer/", "editors run what it names on the host, before there is a container"),
    Guard(".devcontainer.json", "editors run what it names on the host, before there is a container"),
    Guard(".exrc", _START_UP),
    Guard(".vimrc", _START_UP),
    Guard(".nvimrc", _START_UP),
    Guard(".nvim.lua", _START_UP),
    Guard(".husky/", "git runs these on commit"),
    Guard(".pre-commit-config.y*ml", "git runs what it names on commit"),
    Guard("lefthook.*", "git runs what it names on commit"),
    Guard(".lefthook.*", "git runs what it names on commit"),
    Guard("lefthook-local.yml", "git runs what it names on commit", inside="{}\n"),
    Guard("*.pem", "keys and certificates"),
)

# In every git directory. `commondir` moves all of git's configuration elsewhere by merely existing; a
# placeholder must exist too, so it says "here", which is what git assumes without it. Nor does git run with a
# configuration that it cannot open.
GIT_COMMONDIR = Guard("commondir", "would move git's configuration", stand_in=".\n")
GIT = (
    Guard("hooks/", "git runs these on the host"),
    Guard("config", "names programs that git runs: fsmonitor, filters, pagers, ssh"),
    GIT_COMMONDIR,
)
GIT_PER_WORKTREE = Guard("config.worktree", "names programs that git runs", stand_in="\n")
GIT_FILE = Guard(".git", "says where the git directory is")
NO_GIT = Guard(".git/", "a repository made inside would have hooks of its own; `git init` first")

# In ~/.claude, which is writable: an agent outside of the sandbox reads it too, and what it finds there of
# instructions may name programs to run. Settings that are no plain file stop the agent with a question.
CLAUDE = (
    Guard("settings.json", "what the agent may do, and hooks it runs", stand_in="{}\n"),
    Guard("settings.local.json", "what the agent may do, and hooks it runs"),
    Guard("CLAUDE.md", "instructions to agents outside", stand_in="\n"),
    Guard("hooks/", "programs that the agent runs"),
    Guard("plugins/", "programs that the agent runs"),
    Guard("local", "the agent itself, where it is installed here", hold=False),
    Guard("statusline.sh", "settings may name it, for the agent to run", hold=False),
    Guard("statusline-command.sh", "settings may name it, for the agent to run", hold=False),
    Guard("agents/", _INSTRUCTIONS),
    Guard("commands/", _INSTRUCTIONS),
    Guard("skills/", _INSTRUCTIONS),
)


# A placeholder is known by its mode, which nobody else gives to anything: for a file an unreachable socket
# (git takes no notice of sockets, so it is in nobody's `git status`), or a read-only file with the sticky
# bit where it must say something; for a directory the sticky bit where not all may write.
SOCKET_MODE = 0o0000
FILE_MODE = 0o1444
DIRECTORY_MODE = 0o1755


def is_placeholder(mode: int) -> bool:
    """Whatever the umask has left of these modes."""
    if stat.S_ISSOCK(mode):
        return stat.S_IMODE(mode) == SOCKET_MODE
    writable_by_others = stat.S_IMODE(mode) & (0o022 if stat.S_ISDIR(mode) else 0o222)
    return bool(mode & stat.S_ISVTX) and not writable_by_others
