"""The libraries that use a training's CPU time: their files, kinds and shares.

The names are those of the projects' own releases and of the wheels that bundle them. Libraries, not symbols: the
nearest exported symbol of a library that exports few is of another function (of libtorch it named an XPU function for
a convolution).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from functools import cache
from typing import Literal, NamedTuple

CodeKind = Literal[
    "python", "torch", "math", "pool", "driver", "ranks", "memory", "arrays", "codec", "compression", "parser", "jit",
    "own", "kernel",
]  # fmt: skip


class Library(NamedTuple):
    """A row of the table: the name that people read, the kind, and a pattern for the path of the file."""

    name: str
    kind: CodeKind
    pattern: str


#: Code outside libraries: the kernel at work for the thread; code that oneDNN and MKL make for torch's operations
#: on the CPU, mapped from no file; addresses in nothing known, and samples that found the kernel's ring full.
KERNEL, GENERATED, UNKNOWN_LIBRARY = "kernel", "generated kernels", "unknown"
#: Libraries that replace glibc's malloc.
ALLOCATOR = "memory allocator"
#: Libraries that generate code as well: if one is loaded, generated code in that process is its own.
NUMBA = "numba"
#: The first that matches counts.
LIBRARIES: tuple[Library, ...] = (
    Library(KERNEL, "kernel", r"^kernel$"),
    Library(GENERATED, "math", r"^$|^/(memfd:|dev/zero)|^\[(heap|stack|anon)"),
    # a pool's threads run loop bodies in the library that called it: in the pool's own they share out work, and wait
    Library("OpenMP", "pool", r"/lib(gomp|iomp5|omp)\b"),
    Library("CUDA driver", "driver", r"/lib(cuda|nvidia-ptxjitcompiler|nvidia-nvvm)\.so"),
    Library("ROCm driver", "driver", r"/lib(hsa-runtime64|amdhip64)\b"),
    Library("CUDA libraries", "math", r"/lib(cublas|cudnn|cufft|cusparse|cusolver|curand|nvrtc|nvJitLink)"),
    Library("ROCm libraries", "math", r"/lib(MIOpen|rocblas|hipblas)"),
    Library("CUDA runtime", "driver", r"/lib(cudart|cupti)\b"),
    Library("NCCL", "ranks", r"/lib(nccl|rccl)\b"),
    Library("MPI", "ranks", r"/lib(mpi|open-rte|open-pal|ucp|uct|ucs|fabric)\b"),
    Library("MKL", "math", r"/libmkl"),
    Library("OpenBLAS", "math", r"/lib(scipy_)?openblas"),
    Library("oneDNN", "math", r"/lib(dnnl|mkldnn)\b"),
    Library("compiled kernels", "jit", r"/torchinductor_|/\.triton/|/triton/|__triton_launcher"),
    Library(NUMBA, "jit", r"/(numba|llvmlite)/"),
    Library("torchvision images", "codec", r"/torchvision/image"),
    Library("libjpeg", "codec", r"/lib(turbo)?jpeg"),
    Library("libpng", "codec", r"/libpng"),
    Library("libwebp", "codec", r"/lib(webp|sharpyuv)"),
    Library("libtiff", "codec", r"/libtiff"),
    Library("OpenJPEG", "codec", r"/libopenjp2"),
    Library("Pillow", "codec", r"/PIL/"),
    Library("OpenCV", "codec", r"/cv2/|/libopencv"),
    Library("FFmpeg", "codec", r"/lib(avcodec|avformat|avutil|swscale|swresample|dav1d)\b|/(decord|torchcodec|av)/"),
    Library("audio codecs", "codec", r"/lib(sndfile|FLAC|mpg123|vorbis|opus|soxr|sox)|/(soundfile|torchaudio|soxr)"),
    Library("zlib", "compression", r"/(libz|zlib)\b|/zlib\.|/lib(z-ng|deflate|isal)\b"),
    Library("zstd", "compression", r"/libzstd|zstandard|/_zstd"),
    Library("LZMA", "compression", r"/liblzma|/_lzma"),
    Library("bzip2", "compression", r"/libbz2|/_bz2"),
    Library("LZ4, Snappy, Blosc", "compression", r"/(lib)?(lz4|snappy|blosc)|/(numcodecs|blosc2?|cramjam)/"),
    Library("OpenSSL", "compression", r"/lib(crypto|ssl)\b"),
    Library("HDF5", "parser", r"/libhdf5|/h5py/"),
    Library("Arrow", "parser", r"/lib(arrow|parquet)|/pyarrow/"),
    Library("pandas", "parser", r"/pandas/"),
    Library("polars", "parser", r"/_?polars"),
    Library("SQLite", "parser", r"/(lib|_)sqlite3"),
    Library("LMDB", "parser", r"/(lib)?lmdb|/lmdb/"),
    Library("JSON parsers", "parser", r"/(_json\.|orjson|ujson|rapidjson|simdjson)"),
    Library("msgpack, protobuf", "parser", r"/msgpack/|/msgspec/|/libprotobuf|/google/_upb/"),
    Library("XML parsers", "parser", r"/lxml/|/libxml2|/pyexpat"),
    Library("tokenizers", "parser", r"/tokenizers/|/tiktoken|/sentencepiece|/spacy"),
    Library("SciPy", "arrays", r"/scipy(\.libs)?/"),
    Library("scikit-learn", "arrays", r"/sklearn/"),
    Library("scikit-image", "arrays", r"/skimage/"),
    Library("NumPy", "arrays", r"/numpy(\.libs)?/"),
    Library("torch", "torch", r"/torch/|/lib(torch|c10)[_.]"),
    Library(ALLOCATOR, "memory", r"/lib(jemalloc|tcmalloc|mimalloc)"),
    Library("interpreter", "python", r"/(lib)?python\d?(\.\d+)?t?(d?$|\.so|-)|/lib-dynload/"),
    Library("libm", "math", r"/libm[-.]"),
    Library("libc", "memory", r"/(libc|libpthread|ld-linux\S*|libstdc\+\+|libgcc_s)[-.]|^\[vdso\]$|/ld-musl"),
)  # fmt: skip
_KINDS = {each.name: each.kind for each in LIBRARIES}
_EXTENSION = re.compile(r"(\.(cpython|abi3|pypy)[^/]*)?\.so[.\d]*$")


@cache
def library_of(path: str) -> str:
    """The name of the library that a file belongs to; if no row has the library, the file's own name.

    >>> library_of("/usr/lib/x86_64-linux-gnu/libgomp.so.1"), library_of("/site-packages/torch/lib/libtorch_cpu.so")
    ('OpenMP', 'torch')
    >>> library_of("/home/me/my_ops.cpython-311-x86_64-linux-gnu.so")
    'my_ops'
    """
    for library in LIBRARIES:
        if re.search(library.pattern, path):
            return library.name
    return _EXTENSION.sub("", path.rpartition("/")[2])[:40]


def kind_of(name: str) -> CodeKind:
    """The kind of a library by its name; one that is in no row is the user's own."""
    return _KINDS.get(name, "own")


class NativeUse(Counter[tuple[str, str]]):
    """CPU time of one thread, or of several, by library and phase, in samples; empty if none was sampled."""

    @classmethod
    def joined(cls, uses: Iterable[NativeUse]) -> NativeUse:
        """The use of several threads together."""
        return cls(sum(uses, Counter[tuple[str, str]]()))

    def within(self, phases: Collection[str]) -> NativeUse:
        """The part of it that lies in these phases."""
        return NativeUse({key: count for key, count in self.items() if key[1] in phases})

    def without(self, *kinds: CodeKind, part: float = 1.0) -> NativeUse:
        """The use without these kinds of libraries, or without this part (0..1) of the whole in them."""
        gone = min(1.0, part / (self.share(*kinds) or 1.0))
        return NativeUse({key: round(n * (1.0 - gone)) if kind_of(key[0]) in kinds else n for key, n in self.items()})

    def by_phase(self) -> dict[str, NativeUse]:
        """Its parts in each phase, "" if none is known, the largest first."""
        phases = {phase: self.within((phase,)) for _, phase in self}
        return dict(sorted(phases.items(), key=lambda part: -part[1].total()))

    def by_library(self) -> dict[str, float]:
        """The share (0..1) of each library, the largest first."""
        found = Counter[str]()
        for (library, _), count in self.items():
            found[library] += count
        return {library: count / found.total() for library, count in found.most_common() if count}

    def share(self, *kinds: CodeKind) -> float | None:
        """The share (0..1) of all libraries of these kinds; None if there are no samples."""
        return sum(share for name, share in self.by_library().items() if kind_of(name) in kinds) if self else None
