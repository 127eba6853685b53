"""Replies with any bytes: the corpora of tests/fuzz, and mutations of them from a fixed seed."""

import importlib.util
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "fuzz" / "python_replies.py"
_spec = importlib.util.spec_from_file_location("python_replies", SOURCE)
python_replies = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(python_replies)


@pytest.mark.parametrize("name", python_replies.TARGETS)
def test_the_corpora_do_no_harm(name):
    inputs = python_replies.corpus(name)
    assert len(inputs) > 10
    for data in inputs:
        python_replies.TARGETS[name](data)


@pytest.mark.parametrize("name", python_replies.TARGETS)
def test_mutations_do_no_harm(name):
    python_replies.mutations(name, 2000)


def test_groups_in_groups_are_no_reply():
    deep = b""
    for _ in range(3000):
        deep = b"\x8a\x01" + python_replies._codec.varint(len(deep)) + deep
    python_replies.reply(b"\0" + deep)
