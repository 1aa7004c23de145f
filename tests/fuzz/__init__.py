"""Fuzzing: inputs that coverage finds (atheris, which is libFuzzer), and broken requests for a live broker; see docs/fuzzing.md.

targets/     one file per target: `run(data)` returns, or raises what is a finding; `seeds()` makes the kept corpus
corpus/      the kept corpus, a folder per target, written by `python -m tests.fuzz --write-corpus`
findings/    inputs that were findings once, a folder per target; test_replay.py tries them without atheris
engine.py    one target under atheris, which takes over its process
campaign.py  all targets, a line each; `make fuzz`
attack.py    mutated frames of every API over real connections to a live broker, with a probe beside it
mutation.py  mutations of messages and of frames
"""
