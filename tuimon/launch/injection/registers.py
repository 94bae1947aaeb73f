"""The registers of x86-64 that gdb before 14 can write on every processor: none of AVX, AVX-512 and AMX.

It writes all of them at once, from a buffer of 2,696 bytes. The kernel accepts nothing but the whole state of the
processor, which has 11,008 bytes with AMX, and refuses (``xstateregs_set`` in arch/x86/kernel/fpu/regset.c): "Couldn't
write extended state status: Bad address". gdb meets that when the called function has returned and the thread is to
have its registers back. A system call that should go on then returns an error that the C library does not know, and
the C library ends the process. gdb 14 asks the processor for the size:
https://patchwork.sourceware.org/project/gdb/cover/20230714155151.21723-1-jhb@FreeBSD.org/

A gdb that is given this description writes by PTRACE_SETFPREGS and touches no other register.
"""

from __future__ import annotations


def description() -> str:
    """A target description, for gdb's ``set tdesc filename``."""
    general = "rax rbx rcx rdx rsi rdi rbp rsp r8 r9 r10 r11 r12 r13 r14 r15 rip"
    control = "fctrl fstat ftag fiseg fioff foseg fooff fop"
    core = (
        _registers(general, 64)
        + _registers("eflags cs ss ds es fs gs", 32)
        + _registers("st0 st1 st2 st3 st4 st5 st6 st7", 80, "i387_ext")
        + _registers(control, 32)
    )
    sse = _registers(" ".join(f"xmm{number}" for number in range(16)), 128, "uint128") + _registers("mxcsr", 32)
    features = {
        "core": core,
        "sse": sse,
        "linux": _registers("orig_rax", 64),
        "segments": _registers("fs_base gs_base", 64),
    }
    parts = (f'<feature name="org.gnu.gdb.i386.{name}">{text}</feature>' for name, text in features.items())
    return f"<target><architecture>i386:x86-64</architecture><osabi>GNU/Linux</osabi>{''.join(parts)}</target>\n"


def _registers(names: str, bits: int, kind: str = "int") -> str:
    return "".join(f'<reg name="{name}" bitsize="{bits}" type="{kind}"/>' for name in names.split())
