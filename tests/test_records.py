"""Records as objects: what hundreds of ranks hold of them at a time; and that somebody reads each of their fields."""

import ast
import gc
import importlib
import inspect
import pkgutil
import re
from functools import cached_property
from pathlib import Path

import msgspec
import pytest

import tuimon.diagnosis.evidence
import tuimon.session
from tuimon import records
from tuimon.records import PhaseTime, Steps

STRUCTS = [kind for kind in vars(records).values() if isinstance(kind, type) and issubclass(kind, msgspec.Struct)]


@pytest.mark.parametrize("kind", STRUCTS, ids=lambda kind: kind.__name__)
def test_the_garbage_collector_goes_through_no_record(kind):
    assert kind.__struct_config__.gc is False


def test_nor_is_one_that_was_read():
    line = b'{"type":"steps","t":1,"pid":1,"window_s":1,"count":1,"first_index":0,"total_ns":1,"phases":[["data",1]]}'
    record = msgspec.json.decode(line, type=Steps)
    assert record.phases == [PhaseTime("data", 1)]
    assert not gc.is_tracked(record) and not gc.is_tracked(record.phases[0])


ROOT = Path(records.__file__).parent.parent
#: Those who write facts, or pass them on as they are.
WRITERS = tuple(ROOT / name for name in ("records", "sources", "trace", "launch", "agent"))
#: Members that nobody reads by their name: one keeps the position of the fields behind it in logs of earlier versions,
#: the others are for the user's own analysis of the log.
UNREAD = {"Frame.packages", "OptimizerFacts.package", "Steps.min_ns", "Steps.median_ns"}


def members():
    """Fields, properties and methods of records, of the session and of the evidence: by class and name."""
    for package in (records, tuimon.session, tuimon.diagnosis.evidence):
        names = (found.name for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."))
        for module in map(importlib.import_module, names):
            for owner in vars(module).values():
                if isinstance(owner, type) and owner.__module__ == module.__name__ and owner.__name__[0] != "_":
                    yield from ((owner, name) for name, value in vars(owner).items() if is_read_by_name(name, value))


def is_read_by_name(name, value):
    is_field = type(value).__name__ in ("member_descriptor", "_tuplegetter")
    return name[0] != "_" and (is_field or isinstance(value, property | cached_property) or inspect.isfunction(value))


def names_read():
    """The attributes that code beside the writers reads, and its texts; the words of templates."""
    for path in (*ROOT.rglob("*.py"), *ROOT.rglob("*.j2")):
        if path.suffix != ".py":
            yield from re.findall(r"\w+", path.read_text())
        elif not any(path.is_relative_to(folder) for folder in WRITERS):
            for each in ast.walk(ast.parse(path.read_text())):
                if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Load):
                    yield each.attr
                elif isinstance(each, ast.Constant):
                    yield str(each.value)


def test_every_fact_has_a_reader():
    """A field that nobody reads goes, or is read, or has a row in ``UNREAD``."""
    read = set(names_read())
    assert {f"{owner.__name__}.{name}" for owner, name in members() if name not in read} == UNREAD
