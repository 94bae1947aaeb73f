"""Which words are ours and which the target's, and what shells complete."""

import io
import shutil
import subprocess
import sys

import pytest

from docs.make_completions import FOLDER, texts
from tuimon.cli.commands.completions import FILES
from tuimon.cli.main import COMMANDS, help_text, run_command_line
from tuimon.cli.options import add_watching, options_of, parser_of
from tuimon.errors import NotComparable
from tuimon.monitor.reactions import Reactions


@pytest.mark.parametrize(
    ("words", "own", "command"),
    [
        (["train.py"], [], ["train.py"]),
        (["train.py", "--headless", "--log", "x"], [], ["train.py", "--headless", "--log", "x"]),
        (["--headless", "train.py", "--headless"], ["--headless"], ["train.py", "--headless"]),
        (["--log", "a.jsonl", "train.py"], ["--log", "a.jsonl"], ["train.py"]),
        (["--on-hang", "a b", "--on-finding", "x=y", "t.py"], ["--on-hang", "a b", "--on-finding", "x=y"], ["t.py"]),
        (["--log=a.jsonl", "train.py", "-m"], ["--log=a.jsonl"], ["train.py", "-m"]),
        (["-m", "pkg.mod", "--x"], [], ["-m", "pkg.mod", "--x"]),
        (["--no-gpu", "-m", "pkg"], ["--no-gpu"], ["-m", "pkg"]),
        (["--", "-m", "pkg"], [], ["-m", "pkg"]),
        (["--headless", "--", "train.py", "--", "x"], ["--headless"], ["train.py", "--", "x"]),
        (["--", "--weird-name"], [], ["--weird-name"]),
        (["--log"], ["--log"], []),
        ([], [], []),
    ],
)
def test_split(words, own, command):
    parser = parser_of("run", "")
    add_watching(parser)
    assert parser.split_command(words) == (own, command)


def test_help_names_every_command_in_one_line(call):
    out = call("--help").out
    assert out == help_text()
    for name, text in COMMANDS.items():
        assert any(line.split() == [name, *text.split()] for line in out.splitlines())


def test_help_before_a_command_is_that_of_the_command(call):
    assert call("help", "report").out == call("report", "--help").out
    assert "Did you mean tuimon attach?" in call("help", "atach", code=2).err


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ([], "usage"),
        (["atach"], "Did you mean tuimon attach?"),
        (["train.py"], "Did you mean tuimon run train.py?"),
        (["run"], "nothing to run"),
        (["run", "--headless", "--"], "nothing to run"),
        (["run", "--frobnicate", "train.py"], "--frobnicate"),
        (["run", "--head", "train.py"], "--head"),
        (["run", "--interval", "0", "train.py"], "--interval: must be from 0.1 to 3600"),
        (["run", "--interval", "soon", "train.py"], "'soon' is not a number"),
        (["run", "--log", "", "train.py"], "--log: must name a file or a folder"),
        (["run", "--log=-", "train.py"], "--log: must name a file or a folder"),
        (["run", "--headles", "train.py"], "Did you mean --headless?"),
        (["run", "--headless", "--lr", "0.1", "train.py"], "follow its name: tuimon run --headless train.py --lr 0.1"),
        (["run", "-o", "run.jsonl", "train.py"], "--log FILE records the run"),
        (["report", "--formt", "json", "x"], "Did you mean --format?"),
        (["report", "--frobnicate", "x"], "tuimon report --help lists the options"),
        (["report", "--fail-on", "input_bond", "x"], "Did you mean input_bound?"),
        (["report", "--fail-on", ",", "x"], "is missing"),
        (["report", "--fail-on", "slow", "x"], "'slow' is not a rule, a cause or a severity"),
        (["run", "--on-finding", "frobnicate=true", "train.py"], "tuimon explain lists the rules"),
        (["run", "--on-finding", "input_bound=nosuchcmd -x", "train.py"], "'nosuchcmd' cannot be run"),
        (["run", "--on-hang", "nosuchcmd", "train.py"], "there is no such program"),
        (["run", "--on-hang", "/etc/passwd", "train.py"], "it is not executable"),
        (["run", "--on-hang", "page 'me", "train.py"], "cannot be split into words"),
        (["run", "--on-hang", " ", "train.py"], "the command is empty"),
        (["run", "--on-finding", "true", "train.py"], "not of the form RULE=CMD"),
        (["run", "--on-finding", "slow=true", "train.py"], "'slow' is not a rule, a cause or a severity"),
        (["explain", "input_bond"], "Did you mean input_bound?"),
        (
            ["demo", "sink"],
            "'sink' is not one of starved, sync, launch-bound, late-rank, float32, healthy. Did you mean sync?",
        ),
        (["export", "x", "--to", "cvs"], "--to: 'cvs' is not one of"),
        (["export", "x"], "export needs a format"),
        (["view", "--speed", "max", "x"], "'max' is not a number"),
        (["view", "--speed", "0", "x"], "--speed: must be from 0.001 to 1000"),
        (["report"], "LOG is missing"),
        (["run", "--no-markers", "--memory", "train.py"], "Leave out --memory or --no-markers"),
        (["run", "--no-markers", "--on-hang", "true", "train.py"], "Leave out --on-hang or --no-markers"),
        (["run", "--no-stacks", "--rate", "5", "train.py"], "Leave out --rate or --no-stacks"),
        (["run", "--no-stacks", "--max-cpu", "5", "train.py"], "Leave out --max-cpu or --no-stacks"),
        (["run", "--force", "train.py"], "Add --log FILE"),
        (["report", "--force", __file__], "Add -o FILE"),
        (["report", "--brief", __file__], "Add --format json"),
        (["attach", "--keep-hooks", "1"], "--keep-hooks keeps what --inject brings in"),
        (["attach", "--inject", "--no-markers", "1"], "Leave out one of them"),
        (["run", "no-such-script.py"], "there is no script"),
        (["attach", "--duration", "-1", "1"], "--duration"),
        (["attach", "abc"], "'abc' is not a process id"),
        (["attach", __file__], "a log is shown by: tuimon view"),
        (["attach"], "attach needs a PID"),
        (["run", "--prometheus", "http", "train.py"], "is not [ADDRESS:]PORT"),
        (["view", "--prometheus", "http", "x"], "is not [ADDRESS:]PORT"),
        (["run", "--prometheus", "::1:9105", "train.py"], "an IPv6 address stands in brackets"),
    ],
)
def test_usage_errors_exit_2(argv, says, call):
    err = call(*argv, code=2).err
    assert says in err
    assert len(err.splitlines()) <= 2 or not argv


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("command", list(COMMANDS))
def test_help_is_as_wide_as_the_terminal(command, columns, monkeypatch, call):
    monkeypatch.setenv("COLUMNS", str(columns))
    out = call(command, "--help").out
    assert f"tuimon {command}" in out
    assert max(map(len, out.splitlines())) <= columns


def test_runtime_errors_exit_1_with_a_hint(call):
    error = call("attach", "2147483647", code=1).err
    assert error.startswith("tuimon: there is no process 2147483647\n  ")
    assert "tuimon ps" in error


def test_stdout_that_lacks_a_character_gets_a_question_mark(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    assert run_command_line(["explain", "input_bound"]) == 0
    assert b"\n ? DataLoader, its workers and their options:" in raw.getvalue()


def test_version(call):
    names = [line.split()[0] for line in call("--version").out.splitlines()]
    assert names == ["tuimon", "Python", "platform", "py-spy", "torch"]


@pytest.mark.parametrize(
    ("script", "last"),
    [
        ("echo 3.9.1; echo 2.4", "torch 2.4 (in {}, Python 3.9.1)"),
        ("echo 3.9.1; echo", "torch none (in {}, Python 3.9.1)"),
        ("exit 3", "torch ? ({} does not work)"),
    ],
)
def test_the_torch_of_the_users_python(script, last, tmp_path, monkeypatch, call):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert call("--version").out.splitlines()[-1] == last.format(python)


def parsed(*words):
    parser = parser_of("run", "")
    add_watching(parser)
    return options_of(parser.parse_args(list(words)))


def test_commands_for_findings():
    words = ("--on-finding", "input_bound=echo a=b", "--on-hang", "true 'on call'", "--on-finding=critical=true")
    (observer,) = parsed(*words).observers
    assert isinstance(observer, Reactions) and not parsed().observers
    assert observer.reactions == (("hang", "true 'on call'"), ("input_bound", "echo a=b"), ("critical", "true"))


@pytest.mark.parametrize(
    ("words", "example"),
    [
        ("bare.py --log x", "--log ... bare.py"),
        ("bare.py --lr 3 --headless", "--headless bare.py"),
        ("-m bare --log=x", "--log ... -m bare"),
        ("bash bare.sh --log x", "--log ... bash bare.sh"),
        ("torchrun --nproc-per-node 2 bare.py --log x", "--log ... torchrun --nproc-per-node 2 bare.py"),
        ("train --log x", "--log ... train"),
        ("bare.py --lr 3 --help", None),
        ("torchrun --log x", "--log ... torchrun"),
        ("-- bare.py --log x", None),  # set apart on purpose
        *((f"{name} --log x", None) for name in ("argparse.py", "field.py", "fire.py", "click.py", "cases.sh")),
        ("-m field --log x", None),
        ("argparse.py --max-cpu 3", "--max-cpu ... argparse.py"),
    ],
)
def test_an_option_of_tuimons_after_the_script_is_named_unless_the_script_knows_it(
    words, example, tmp_path, monkeypatch, call
):
    scripts = {
        "bare.py": "log = print  # a log\nlog('x')\n",
        "bare.sh": 'python bare.py "$@"\n',
        "argparse.py": 'parser.add_argument("--log")\n',
        "field.py": "class Arguments:\n    log: str = ''\n",
        "fire.py": "def main(lr=0.1, log=None): ...\n",
        "click.py": "DEFINE_string('log', None, '')\n",
        "cases.sh": "case $1 in --log) shift;; esac\n",
    }
    for name, text in scripts.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tuimon.cli.commands.run.resolve", list)
    monkeypatch.setattr("tuimon.cli.commands.run.open_run", stopped)
    named = [
        line
        for line in call("run", "--headless", *words.split(), code=3).err.splitlines()
        if "tuimon's own options" in line
    ]
    assert [line.partition(": tuimon run ")[2] for line in named] == ([example] if example else [])


def stopped(*_):
    raise NotComparable("it is not started here")


#: What bash does on Tab, for the words of a command line.
_TAB = """
source "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_tuimon
printf '%s\\n' "${COMPREPLY[@]}"
"""


def test_the_files_are_those_of_the_parsers():
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(FILES.values())
    stale = [str(path) for path, text in texts().items() if path.read_text(encoding="utf-8") != text]
    assert stale == [], "out of date: make completions"


@pytest.mark.parametrize("shell", FILES)
def test_the_command_prints_what_ships(shell, call):
    assert call("completions", shell).out == (FOLDER / FILES[shell]).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "suggested"),
    [
        (("",), {*COMMANDS, "--help", "--version"}),
        (("de",), {"demo"}),
        (("demo", "st"), {"starved"}),
        (("report", "--fo"), {"--format", "--force"}),
        (("report", "--format", ""), {"text", "json", "html"}),
        (("report", "-o", ""), set()),  # files: bash's own
        (("run", "--no"), {"--no-markers", "--no-gpu", "--no-native", "--no-stacks"}),
        (("run", "train.py", "--no"), set()),  # options of train.py
    ],
)
def test_what_bash_suggests(words, suggested):
    done = subprocess.run(
        ["bash", "-c", _TAB, "bash", FOLDER / FILES["bash"], "tuimon", *words],
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(done.stdout.split()) == suggested


@pytest.mark.parametrize("shell", FILES)
def test_the_shell_can_read_its_file(shell):
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"there is no {shell}")
    done = subprocess.run([program, "-n", FOLDER / FILES[shell]], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
