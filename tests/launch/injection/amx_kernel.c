/* For LD_PRELOAD in gdb: ptrace(2) as a kernel answers gdb before 14 on a processor with AMX, whose state is larger than
   what that gdb writes. With REFUSES_ALL no register but the general ones may be written. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/types.h>

long ptrace(enum __ptrace_request request, ...)
{
    va_list arguments;
    va_start(arguments, request);
    pid_t pid = va_arg(arguments, pid_t);
    void *address = va_arg(arguments, void *), *data = va_arg(arguments, void *);
    va_end(arguments);
    static long (*kernels)(int, ...);
    if (kernels == NULL)
        kernels = (long (*)(int, ...))dlsym(RTLD_NEXT, "ptrace");
    const unsigned long xstate = 0x202; /* NT_X86_XSTATE */
    int is_whole_state = request == PTRACE_SETREGSET && (unsigned long)address == xstate;
    if (is_whole_state || (request == PTRACE_SETFPREGS && getenv("REFUSES_ALL"))) {
        errno = EFAULT;
        return -1;
    }
    return kernels(request, pid, address, data);
}
