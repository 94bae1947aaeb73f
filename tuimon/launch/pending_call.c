/* What gdb puts into a process, as in gdb.py: compiled, it is position-independent and has no data.

   gcc 12 -Os -fomit-frame-pointer -fno-stack-protector -fno-asynchronous-unwind-tables -fno-toplevel-reorder -c
   x86_64: -fpic -fcf-protection=none; aarch64: -fno-pic -mcmodel=tiny -mbranch-protection=none */

struct request {
    unsigned long (*start_new_thread)(void (*)(void *), void *);
    void *(*save_thread)(void);
    void (*restore_thread)(void *);
    int (*ensure)(void);
    void (*release)(int);
    int (*run_string)(const char *);
    int (*access)(const char *, int);
    int (*usleep)(unsigned);
    char path[1024];
    char statement[];
};

static void in_thread(void *argument)
{
    struct request *request = argument;
    int state = request->ensure();
    request->run_string(request->statement);
    request->release(state);
}

/* The interpreter calls this in the main thread, with the GIL. It waits for at most 2 s, without the GIL. */
int pending_call(struct request *request)
{
    if (request->start_new_thread(in_thread, request) != (unsigned long)-1) {
        void *thread = request->save_thread();
        for (int left = 2000; left && !request->access(request->path, 0); left--)
            request->usleep(1000);
        request->restore_thread(thread);
    }
    return 0;
}
