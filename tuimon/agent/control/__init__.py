"""Orders that a monitor may give the agent while the training runs: one module per command.

A monitor writes an order into the ring's header and rings its bell (``ring/control_words.py``). The hook around
``backward`` compares the bell with the value it saw last: one memory read, and nothing more if it is unchanged.
``orders.py`` then takes the order and hands it to its command, a module in this folder::

    def begin(task: Task) -> Optional[Work]: ...  # at the end of a backward pass, on the thread that ran it

    class Work:
        def step(self) -> None: ...  # at the end of every later one, while the task ``needs_steps``
        def end(self) -> None: ...   # the task ends before its work is done: undo what ``begin`` did

A command reports how far it has come by ``task.report(value)``, and is over after ``task.finish``, ``task.refuse`` or
``task.fail``. While a task that needs steps is open the markers have no gaps (``pace.py``), so that no step is missed.
``end`` is called when the monitor takes the order back (argument 0), when it is gone (no heartbeat for 5 s), and before
the hooks are withdrawn. An exception that a command raises becomes its answer; none reaches the program.
"""
