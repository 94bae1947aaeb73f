"""Reads the stacks of a Python without a GIL out of its memory: of another process, or of the one it runs in.

Only bytes are copied, by the kernel: no object of the interpreter is touched and no thread is stopped, so that nothing
here can harm it. ``sys._current_frames()`` hands out the frames of running threads, which Python calls unsafe there
(https://docs.python.org/3.13/howto/free-threading-python.html#frame-objects; python/cpython issue 152355). What a copy
holds may be torn, as its thread runs on: a stack counts only when it leads to its outermost frame over valid code.

``dumped_stacks`` is for Python 3.11, where frames of other threads are no safer although it has a GIL.
"""
