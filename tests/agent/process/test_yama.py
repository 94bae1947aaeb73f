"""Permission for py-spy under Yama's ptrace scope."""


def test_tracers_are_allowed_under_yama(monkeypatch):
    import ctypes

    from tuimon.agent.process import yama

    calls = []

    class Libc:
        def __init__(self, name):
            self.prctl = lambda *arguments: calls.append(arguments)

    monkeypatch.setattr(ctypes, "CDLL", Libc)
    for scope, expected in ((0, 0), (1, 1)):
        monkeypatch.setattr(yama, "_restricted", None)
        monkeypatch.setattr(yama, "_scope", lambda scope=scope: scope)
        yama.allow_tracers()
        assert len(calls) == expected
    assert calls[0][0] == 0x59616D61 and calls[0][1].value == ctypes.c_ulong(-1).value
