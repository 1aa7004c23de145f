"""The targets, a module each, with the names of tests/fuzz/target.py.

run(data)            returns, or raises what is a finding
seeds()              name -> input of the kept corpus
MAX_LENGTH           of an input; 4096 without
mutate(data, size, seed)      a mutator that knows the format, where there is one
instrument(with_coverage)     functions that are made at run time
"""
