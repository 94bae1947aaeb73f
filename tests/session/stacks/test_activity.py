"""What innermost frames tell: one table row after the other."""

import pytest

from tuimon.records import Frame
from tuimon.session.stacks.activity import activity_of, standing_activity

TORCH = "/e/lib/python3.11/site-packages/torch"
LIB = "/usr/lib/python3.11"
MAIN = Frame("/p/train.py", 4, "main", "for x in loader:", True)
FETCH = Frame(f"{TORCH}/utils/data/dataloader.py", 1464, "_try_get_data")
QUEUE = Frame(f"{LIB}/multiprocessing/queues.py", 113, "get")
SELECT = Frame(f"{LIB}/selectors.py", 415, "select")
WAIT = Frame(f"{LIB}/threading.py", 327, "Condition.wait")
COMMUNICATE = Frame(f"{LIB}/subprocess.py", 1196, "communicate")
LOOP = Frame(f"{TORCH}/utils/data/_utils/worker.py", 349, "_worker_loop")
ITEMS = Frame(f"{TORCH}/utils/data/_utils/fetch.py", 52, "fetch")
CONV = Frame(f"{TORCH}/nn/modules/conv.py", 543, "_conv_forward")

READER = Frame("/e/lib/python3.11/site-packages/datasets/reader.py", 5, "__getitem__")
ACCEPT = Frame(f"{LIB}/socket.py", 294, "accept")
GRPC = Frame("/e/lib/python3.11/site-packages/grpc/_server.py", 9, "wait_for_termination")
SOCKET = Frame(f"{LIB}/socket.py", 706, "readinto")

STACKED = "batch = torch.stack([load(n) for n in range(9)])"
HANDS_OVER = Frame(f"{TORCH}/multiprocessing/reductions.py", 538, "rebuild_storage_fd")


def user(text, function="main"):
    return Frame("/p/train.py", 9, function, text, True)


COMPILES = Frame(f"{TORCH}/_dynamo/convert_frame.py", 9, "_compile")
CALL = Frame(f"{TORCH}/_ops.py", 1279, "__call__")


@pytest.mark.parametrize(
    ("stack", "activity"),
    [
        ((MAIN, FETCH, QUEUE, SELECT), "data"),
        ((MAIN, FETCH, *[Frame(f"{LIB}/multiprocessing/connection.py", n, "wait") for n in range(6)], SELECT), "data"),
        # the worker's thread that hands over the file of a tensor waits for the GIL while it makes the next batch
        ((MAIN, FETCH, HANDS_OVER, Frame(f"{LIB}/multiprocessing/reduction.py", 157, "recvfds")), "data"),
        ((MAIN, FETCH, HANDS_OVER, Frame(f"{LIB}/multiprocessing/reduction.py", 157, "unpack")), "torch"),
        ((MAIN, FETCH, WAIT), "data"),  # with pin_memory the trainer waits for a thread's queue
        ((LOOP, QUEUE, SELECT), "idle"),
        ((LOOP,), "idle"),
        ((Frame(f"{TORCH}/utils/data/_utils/pin_memory.py", 28, "do_one_step"), QUEUE, SELECT), "idle"),
        ((WAIT,), "idle"),  # a helper thread, its other frames left out of the log
        ((Frame(f"{LIB}/socket.py", 294, "accept"),), "idle"),
        ((MAIN, WAIT), "thread"),
        ((user("with self.slots:"), WAIT), "lock"),  # a semaphore is written in Python
        ((MAIN, Frame(f"{LIB}/site-packages/filelock/_core/_acquire.py", 177, "_poll_until_acquired")), "lock"),
        ((MAIN, Frame(f"{LIB}/site-packages/filelock/_core/_lock.py", 90, "is_locked")), "python"),
        ((MAIN, Frame(f"{LIB}/concurrent/futures/_base.py", 451, "result"), WAIT), "thread"),
        ((MAIN, Frame(f"{LIB}/queue.py", 171, "get"), WAIT), "thread"),
        ((MAIN, Frame(f"{TORCH}/distributed/distributed_c10d.py", 2500, "all_reduce")), "ranks"),
        ((MAIN, Frame(f"{TORCH}/distributed/c10d_logger.py", 81, "wrapper")), "ranks"),
        ((MAIN, Frame(f"{TORCH}/distributed/distributed_c10d.py", 2201, "_new_process_group_helper")), "ranks"),
        # an operator is called in C: its caller in torch shows what it does, if that is not the program itself
        ((MAIN, Frame(f"{TORCH}/distributed/_functional_collectives.py", 142, "wait_tensor"), CALL), "ranks"),
        ((MAIN, Frame(f"{TORCH}/distributed/tensor/_dispatch.py", 440, "dispatch"), CALL), "torch"),
        ((MAIN, CALL), "torch"),
        ((MAIN, Frame(f"{TORCH}/cuda/__init__.py", 985, "synchronize")), "sync"),
        ((MAIN, Frame(f"{TORCH}/cuda/streams.py", 222, "Event.synchronize")), "sync"),
        ((MAIN, Frame(f"{TORCH}/_tensor_str.py", 146, "__init__")), "sync"),
        ((MAIN, CONV), "torch"),
        ((user("loss.item()"), CONV), "torch"),
        ((MAIN, Frame(f"{TORCH}/optim/adam.py", 380, "step")), "torch"),
        ((MAIN, Frame(f"{TORCH}/_dynamo/eval_frame.py", 700, "compile_wrapper")), "torch"),
        ((MAIN, COMPILES, Frame(f"{TORCH}/fx/graph.py", 9, "python_code")), "compile"),
        ((MAIN, COMPILES, Frame("<frozen importlib._bootstrap>", 9, "_load")), "compile"),
        ((MAIN, Frame(f"{TORCH}/_inductor/cpp_builder.py", 696, "_run_compile_cmd"), COMMUNICATE), "compile"),
        ((MAIN, Frame(f"{TORCH}/_inductor/codecache.py", 3852, "load_fn"), WAIT), "compile"),
        ((Frame(f"{TORCH}/_inductor/compile_worker/subproc_pool.py", 9, "_read_thread"), WAIT), "idle"),
        ((Frame(f"{TORCH}/_dynamo/eval_frame.py", 700, "compile_wrapper"), MAIN, WAIT), "thread"),
        ((MAIN, Frame("<frozen importlib._bootstrap>", 241, "_call_with_frames_removed")), "import"),
        ((MAIN, Frame(f"{TORCH}/serialization.py", 850, "_save")), "io"),
        ((MAIN, Frame(f"{LIB}/socket.py", 706, "readinto")), "network"),
        ((MAIN, Frame(f"{LIB}/json/decoder.py", 353, "raw_decode")), "python"),
        ((LOOP, Frame(f"{TORCH}/utils/data/_utils/fetch.py", 52, "fetch")), "python"),
        ((LOOP, Frame(f"{TORCH}/utils/data/_utils/collate.py", 52, "collate")), "python"),
        ((LOOP, ITEMS, MAIN, Frame(f"{LIB}/multiprocessing/synchronize.py", 95, "__enter__")), "lock"),
        # a wait of Python's own is for what its callers wait for
        ((MAIN, Frame(f"{LIB}/multiprocessing/connection.py", 257, "poll"), SELECT), "message"),
        ((MAIN, Frame(f"{LIB}/subprocess.py", 548, "run"), SELECT), "child"),
        ((MAIN, Frame(f"{TORCH}/multiprocessing/spawn.py", 132, "join"), SELECT), "child"),
        ((MAIN, Frame(f"{LIB}/asyncio/base_events.py", 604, "run_forever"), SELECT), "connection"),
        # a data set of a library: the loader waits for nothing itself
        ((MAIN, FETCH, ITEMS, READER, WAIT), "thread"),
        ((MAIN, FETCH, ITEMS, READER, SOCKET), "network"),
        ((LOOP, ITEMS, READER, WAIT), "thread"),
        ((MAIN, SOCKET, SELECT), "network"),
        ((SOCKET, MAIN, CONV), "torch"),  # a server that trains
        ((MAIN, GRPC, WAIT), "network"),
        ((MAIN, ACCEPT), "connection"),
        ((MAIN, Frame(f"{LIB}/bdb.py", 90, "trace_dispatch"), Frame(f"{LIB}/cmd.py", 126, "cmdloop")), "prompt"),
        ((MAIN, Frame(f"{LIB}/bdb.py", 90, "trace_dispatch")), "python"),  # a debugger slows each line
        ((), "python"),
        # a loop on a line that calls torch is Python
        ((MAIN, user(STACKED)), "torch"),
        ((MAIN, user(STACKED, "<listcomp>")), "python"),
        ((MAIN, user("order = sorted(words, key=lambda word: by(word, torch.long))", "<lambda>")), "python"),
        ((MAIN, user("total = sum(loss.item() for loss in losses)", "<genexpr>")), "sync"),
    ],
)
def test_places(stack, activity):
    assert activity_of(stack) == activity


@pytest.mark.parametrize(
    ("stack", "activity"),
    [
        ((MAIN, GRPC, WAIT), "thread"),  # a server
        ((MAIN, ACCEPT), "connection"),
        ((MAIN, SOCKET), "network"),
        ((MAIN, Frame(f"{TORCH}/utils/data/dataloader.py", 700, "__next__")), "data"),
        ((MAIN, Frame(f"{TORCH}/_tensor.py", 3, "backward")), "ranks"),
        ((user("row = rows.get()"),), "thread"),  # a queue in C
        ((user("with self.slots:"),), "lock"),
        ((Frame(f"{LIB}/threading.py", 1590, "_shutdown"), WAIT), "thread"),
        ((), "python"),
    ],
)
def test_a_thread_that_does_not_move(stack, activity):
    assert standing_activity(stack) == activity


@pytest.mark.parametrize(
    ("text", "activity"),
    [
        ("time.sleep(0.01)", "sleep"),
        ("sleep(1)", "sleep"),
        ("total += loss.item()", "sync"),
        ("total += loss.detach()  # not loss.item(), which waits", "python"),
        ("acc = (out.argmax(1) == y).float().mean().cpu()", "sync"),
        ("rows = mask.nonzero()", "sync"),
        ("torch.cuda.synchronize()", "sync"),
        ("x = x.to(device, non_blocking=True)", "transfer"),
        ("model.cuda()", "transfer"),
        ("lock.acquire()", "lock"),
        ("fcntl.flock(file, fcntl.LOCK_EX)", "lock"),
        ("fcntl.flock(file, fcntl.LOCK_UN)", "python"),
        ("group = dist.new_group([0, 1])", "ranks"),
        ("thread.join()", "thread"),
        ("answer = pipe.recv()", "message"),
        ("for line in server.stdout:", "message"),
        ("head = sys.stdin.buffer.read(8)", "message"),
        ("sys.stdout.write(line)", "io"),
        ("while not select.select([sys.stdin], [], [], 1)[0]:", "connection"),
        ("signal.sigwait([signal.SIGUSR1])", "connection"),
        ("x = x.select(0, i)", "python"),
        ('os.system("pip install timm")', "child"),
        ('name = input("run? ")', "prompt"),
        ("x = self.to_input(x)", "python"),
        ('",".join(names)', "python"),
        ("with self._lock:", "lock"),
        ("img = Image.open(path)", "io"),
        ("data = file.read()", "io"),
        ("torch.save(model.state_dict(), path)", "io"),
        ("y = torch.relu(x)", "torch"),
        ("loss = F.cross_entropy(out, y)", "torch"),
        ("loss.backward()", "torch"),
        ("x = [a * b for a, b in pairs]", "python"),
        ("", "python"),
    ],
)
def test_what_the_text_of_a_line_betrays(text, activity):
    assert activity_of((MAIN, user(text))) == activity
