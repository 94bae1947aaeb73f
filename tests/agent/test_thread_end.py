"""What is called as a thread ends."""

import threading

from tuimon.agent.thread_end import when_thread_ends


def test_the_latest_alone_is_called_and_not_before_the_thread_ends():
    called = []

    def run():
        when_thread_ends(lambda: called.append("first"))
        when_thread_ends(lambda: called.append("second"))
        called.append("running")

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert called == ["running", "second"]
