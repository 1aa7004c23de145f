"""The codec in C, for Cython; there is no plain form of it: without it `codec` writes and compiles Python source (native.py chooses).

Role and rules are those of `codec`. Thread: any. Lock: none.

    slots.pxd     slots of objects and big-endian numbers, below Python
    layout.pyx    the fields of a message class in one version; making a message, counting its error codes
    plan.pyx      reads and writes a message as its layout says
"""
