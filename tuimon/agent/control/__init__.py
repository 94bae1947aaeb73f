"""What a monitor may order from the agent while the training runs: one module a command.

A monitor writes an order into the ring's header and rings its bell (``ring/control_words.py``). The hook around
``backward`` compares the bell with the one it has seen: one memory read, and nothing else where it is unchanged.
``orders.py`` then takes the order and hands it to its command, a module in this folder::

    NEEDS_STEPS = True                 # have ``step`` called; False: nothing more is done on the training's threads

    def begin(task: Task) -> None: ...     # at the end of a backward pass, on the thread that made it
    def step(task: Task) -> None: ...      # if there: at the end of every later one, until the task is over
    def end(task: Task) -> None: ...       # if there: the task is over before its work was: undo what ``begin`` did

A command reports how far it has come by ``task.report(value)``, and is over after ``task.finish``, ``task.refuse`` or
``task.fail``. While a task that needs steps is open the markers have no gaps (``pace.py``), so that no step is missed.
``end`` is called when the monitor takes the order back (argument 0), when it is gone (no heartbeat for 5 s), and before
the hooks are withdrawn. An exception of a command is its answer; none reaches the program.
"""
