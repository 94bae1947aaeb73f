"""What is publicly known of the time at a line: by the functions of libraries that it is in, or by its text.

A row: what takes the time, in words that follow "40 % in"; an expression; what to do about it. It speaks only where
most of the time at a line is in it. Of a library's frame the expression sees ``file function source``, of a line of
the user's a space and its text, as C code has no frames. From public reports, torch's own pages, such as
https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html, and those of the libraries named here, such as
https://wiki.python.org/moin/TimeComplexity, https://github.com/numpy/numpy/issues/16268 (choice),
https://github.com/huggingface/datasets/issues/1755 (indices), https://github.com/pytorch/pytorch/issues/13918 (lists),
.../100347 (attention), .../50584 (derivatives), .../94160 (subclasses).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from tuimon.diagnosis.words import most_at
from tuimon.records import Place
from tuimon.session.stacks.samples import Samples
from tuimon.session.stacks.trie import Node

#: How many frames are remembered: a run has some hundreds.
_FRAMES_HELD = 4096
Table = dict[str, tuple[str, str]]


class Known(NamedTuple):
    """What a row says."""

    what: str
    action: str

    @property
    def if_growing(self) -> str:
        """What to do where it takes longer and longer."""
        if self.what == "hooks of modules":
            return "see whether each step registers hooks anew: register them once, or remove them (handle.remove())"
        return self.action


#: Of any frame of a stack.
THROUGH: Table = {
    "parametrized weights, computed anew for each use": (
        r"torch/nn/utils/(?:parametri\w+|weight_norm|spectral_norm)\.py ",
        "compute parametrized weights once a step: with torch.nn.utils.parametrize.cached(); or make them plain ones"
        " (remove_parametrizations)",
    ),
    "hooks of modules": (
        r"torch/nn/modules/module\.py \S+ .*\bhook\(",
        "remove the hooks that training does not need (handle.remove()), or let them run once in many steps",
    ),
    "attention that returns its weights": (
        r"torch/nn/functional\.py multi_head_attention_forward .*\battn_output_weights\b",
        "call nn.MultiheadAttention with need_weights=False: it then uses scaled_dot_product_attention",
    ),
    "attention written out": (r"/transformers/\S+ eager_attention_forward ", "load it with attn_implementation='sdpa'"),
    "a recurrent cell that is run position by position": (
        # the text of the latter: h, c = self.cell(x[:, t], (h, c))
        r"torch/nn/modules/rnn\.py forward .*_cell\("
        r"| (\w+)[\w, ()]* = [\w.]+\(\w+\[(?::, ?)?(?:[a-z]|step|pos|time)(?:, ?[:.]+)?\], .*\b\1\b",
        "run the whole sequence by one call of nn.LSTM, nn.GRU or nn.RNN; of another cell compute for all positions,"
        " before the loop, what needs no state",
    ),
    "forward passes made again, for activation checkpointing": (
        r"torch/utils/checkpoint\.py (?:unpack_hook|recompute_fn|backward) ",
        "checkpoint fewer layers, if there is memory for their activations",
    ),
    "derivatives that are made row by row": (r"torch/autograd/functional\.py ", "use torch.func (jacrev, vmap)"),
    "operations on a tensor's subclass, each of which goes through Python": (
        r"torch/(?:_tensor|overrides)\.py (?:__torch_function__|handle_torch_function) ",
        "make plain tensors of them before the model: x.as_subclass(torch.Tensor)",
    ),
    "a product of several tensors, from left to right": (
        r"^ .*\beinsum\(\s*['\"][^'\"]*,[^'\"]*,",
        "install opt_einsum, which finds the cheapest order, or multiply pair by pair",
    ),
    "copies of the model for nn.DataParallel": (
        r"torch/nn/parallel/(?:replicate|scatter_gather)\.py ",
        "use DistributedDataParallel, with one process for each GPU",
    ),
    "a function that is called row by row": (
        r"/pandas/core/\S+ (?:apply\w*|iterrows|itertuples|map) |/numpy/lib/\S+ (?:_vectorize\w*|apply_along_axis) ",
        "compute on whole columns or arrays: apply() and np.vectorize() loop in Python",
    ),
}
#: Of frames below the user's innermost line; of that line, where nothing is below it.
BELOW: Table = {
    "one-hot vectors": (
        r"^ .*\bone_hot\(",
        "use the indices: nn.Embedding looks up what nn.Linear makes of one-hot vectors; most losses take indices",
    ),
    "sparse tensors that are built": (
        r"^ .*\b(?:coalesce|to_sparse\w*|sparse_\w+_tensor)\(",
        "build sparse tensors once, before the loop, if what they are made of does not change",
    ),
    "arrays that are copied whole to append to them": (
        r"^ ((?:self\.)?\w+) = (?:np|numpy)\.(?:concatenate|append|[hv]?stack)\(\s*[\[(]*\s*\1\b"
        r"|^ (\w+[.\[]\S*) = torch\.(?:cat|concat|[hv]?stack)\(\s*[\[(]\s*\2|^ ([\w.]+) = \3 \+ \["
        r"|/numpy/lib/\S+ append |/pandas/core/reshape/concat\.py ",
        "append the parts to a list and join them once, where the whole is needed, or fill an array of its full size",
    ),
    "searches through a sequence from its start": (
        r"^ .*\.(?:index|remove)\(|^ (?:if|while|return|assert) (?:not )?\w\S* (?:not )?in [\w.]+:?$",
        "keep a dict of positions, or a set: all others are compared element by element",
    ),
    "lists that are shifted": (r"^ .*(?:\.pop\(0\)|\.insert\(0,|\bdel [\w.]+\[0\])", "use a deque and its popleft()"),
    "draws that shuffle all there is to take a few": (
        r"^ .*(?:\b(?:np|numpy)\.random\.choice\(.*replace=False|\b(?:permutation|randperm)\(.*\)\[:)",
        "draw with replacement (np.random.randint(), torch.randint()), or by choice() of np.random.default_rng(), which"
        " touches only what it draws",
    ),
    "draws by weights that are summed up each time": (
        r"^ .*(?:\.choice\(.*\bp=|\bmultinomial\()|/random\.py choices ",
        "draw many at once, or keep the cumulative sums (np.searchsorted), in a tree if weights change",
    ),
    "draws in Python, one by one": (
        r"/random\.py ",
        "draw whole arrays (torch.randint()); random.sample() of a deque walks to each: keep a list",
    ),
    "arrays and tensors made of Python's lists": (
        r"^ .*\b(?:torch\.(?:as_tensor|tensor|\w*Tensor)|(?:np|numpy)\.(?:as)?array)\(",
        "keep numbers in arrays from the start; join rows by torch.from_numpy(np.stack(rows)), not torch.tensor(rows)",
    ),
    "tensors that are read element by element": (
        r"torch/_tensor\.py (?:__iter__|__contains__) |^ .*(?:\]\.item\(\)|\b(?:float|int)\([\w.]+\[[^:\]]*\]\))",
        "compute on the whole tensor, or take all its values at once: .tolist()",
    ),
    "deep copies, made object by object": (r"/copy\.py ", "copy only what changes: tensors by .clone()"),
    "text or objects that are parsed anew": (
        r"/(?:json/\w+|csv|ast|_strptime|pickle)\.py |/xml/etree/|-packages/(?:bs4|lxml|yaml|simplejson|dateutil)/"
        r"|/pandas/io/|/numpy/lib/\S+ (?:loadtxt|genfromtxt|_read) "
        r"|^ .*(?:\b(?:pickle|msgpack|joblib)\.(?:loads?|unpackb)\(|(?<![\w.])eval\(|\.split\((?:\)|['\"]))",
        "parse once, before the training, and keep arrays: np.save(), Arrow, a memory map",
    ),
    "rows and cells looked up by pandas": (
        r"/pandas/core/(?:indexing|series|frame|generic|internals/\w+)\.py ",
        "take the columns out before the loop, as arrays (to_numpy()), and index these",
    ),
    "texts that are searched or split into tokens": (
        r"/re(?:/\w+)?\.py |/sre_\w+\.py |/transformers/\S*tokenization_\S+ |-packages/(?:nltk|spacy|jieba)/",
        "clean and tokenize texts once, before the training, in batches and by a fast tokenizer",
    ),
    "whole files of tensors or arrays": (
        r"torch/serialization\.py (?:_?load|_legacy_load) |/numpy/lib/\S+ (?:load|read_array) ",
        "load them once, or map them: np.load(mmap_mode='r'), torch.load(mmap=True); .npz files cannot be mapped",
    ),
    "files that are opened for each item": (
        r"/h5py/_hl/files\.py |/(?:zipfile|tarfile)(?:/__init__)?\.py (?:_RealGetContents|next|_load|getmembers?) ",
        "open the file once in each worker, and keep it open; unpack a .tar, which has no index",
    ),
    "data that is decompressed": (
        r"/(?:gzip|bz2|lzma|_compression)\.py |^ .*\b(?:zlib|bz2|lzma|gzip|zstd\w*|blosc2?)\.(?:open|decompress)\(",
        "decompress once, before the training, or store it by lz4 or zstd, which are faster to read",
    ),
    "reads from chunked storage": (
        r"/h5py/_hl/|-packages/(?:zarr|netCDF4|xarray|tables)/",
        "let a chunk hold what an item reads, read slices instead of lists of indices, and cache chunks (rdcc_nbytes)",
    ),
    "pictures that are decoded in full": (
        r"/PIL/ImageFile\.py |^ .*\bcv2\.im(?:read|decode)\(",
        "store smaller originals, or decode JPEGs at a part of their size: Image.draft(), cv2.IMREAD_REDUCED_COLOR_2",
    ),
    "pictures that are resized or warped": (
        r"/PIL/Image\.py (?:resize|thumbnail|rotate|transform) |/skimage/transform/|/scipy/ndimage/\S*interpolation\.py"
        r"|^ .*\bcv2\.(?:resize|remap|warp\w+)\(",
        "store them at the size that is used, lower the order of interpolation, or warp whole batches as tensors",
    ),
    "transforms of one picture at a time": (
        r"/(?:torchvision/transforms|albumentations|imgaug)/",
        "crop before all else, use torchvision.transforms.v2 on uint8 tensors, and normalise whole batches",
    ),
    "sound that is resampled or analysed": (
        r"-packages/(?:librosa|torchaudio|resampy|soxr|python_speech_features)/|/scipy/signal/",
        "keep the files at the rate that is used, or their features; make a transform once, not its kernel each time",
    ),
    "rows of sparse matrices": (r"/scipy/sparse/", "convert once, to CSR for rows; and take a batch of rows at once"),
    "graphs that are walked in Python": (r"-packages/(?:networkx|rdkit)/", "make arrays of each graph once"),
    "a data set of Arrow tables": (
        r"-packages/datasets/",
        "take batches instead of rows, in with_format('torch'); flatten_indices() after shuffle() or select()",
    ),
    "queries and calls for one item each": (
        r"/requests/api\.py |/urllib/request\.py |/boto(?:3|core)/(?:session|loaders)\.py "
        r"|^ .*(?:\.(?:execute|fetch(?:one|all))\(|\blmdb\.open\(|\benv\.begin\(|\btxn\.get\()",
        "ask for a batch at once, over one connection, session or client that stays open (of lmdb: readahead=False)",
    ),
    "folders that are listed": (
        r"/(?:glob|fnmatch)\.py |/os\.py _?walk |^ .*\bos\.(?:listdir|scandir)\(",
        "do it once",
    ),
    "programs that are started": (r"/subprocess\.py ", "use a library, or one program that keeps running"),
    "metrics that are computed in the loop": (
        r"-packages/(?:sklearn/metrics/(?!pairwise)|torchmetrics/)",
        "keep what they need (of torchmetrics by update()), and compute them once, at the end of the epoch",
    ),
    "distances of all pairs": (
        r"/sklearn/metrics/pairwise\.py |/functional\.py cdist |/scipy/spatial/|^ .*(?:\bcdist\(|, None\] - \w+\[)",
        "compute them by one product (torch.cdist), in parts, or of near neighbours alone",
    ),
    "inverses and decompositions of matrices": (
        r"^ .*\b(?:linalg|torch)\.(?:p?inv\w*|svd\w*|eig\w*|matrix_exp|expm)\(|/numpy/linalg/\S+ (?:p?inv|svd|eig\w*) ",
        "compute them less often; solve() takes less than a product with an inverse",
    ),
    "sorts": (
        r"^ .*(?:\b(?:sorted|(?:np|torch)\.(?:unique\w*|(?:arg)?sort|median|quantile|percentile))\(|\.(?:arg)?sort\()",
        "sort whole tensors at once; take the few largest by topk(), and count ids by bincount()",
    ),
    "copies or averages of weights, tensor by tensor": (
        r"torch/nn/modules/module\.py \w*state_dict\w* |^ .*\.(?:mul_|lerp_|copy_|add_)\(.*\b(?:decay|tau|ema\w*)\b",
        "use torch._foreach_copy_() or _foreach_lerp_() on lists of all tensors, made once",
    ),
    "norms of gradients, one by one": (r"^ .*(?:\.grad\b.*norm\(|norm\(.*\.grad\b)", "use torch._foreach_norm()"),
    "checks for NaN": (r"^ .*\bis(?:nan|inf|finite)\(.*\.(?:any|all)\(", "check the loss alone, or in few steps"),
    "arrays that are converted": (r"^ .*\.astype\(", "store them in the type that is used, or convert whole batches"),
    "figures and histograms that are drawn or logged": (
        r"-packages/(?:matplotlib|seaborn|plotly|tensorboardX?|wandb|mlflow|neptune)/|torch/utils/tensorboard/",
        "log numbers in one of many steps, histograms (add_histogram(), wandb.watch()) and pictures hardly ever",
    ),
    "text that is printed, logged or shown as a bar": (
        r"torch/_tensor_str\.py |/logging/\w+\.py |-packages/(?:tqdm|rich)/\S+ (?!__iter__)"
        r"|^ .*(?:\bprint\(|\bfsync\(|\.flush\(\))",
        "do it in one of a hundred steps, with numbers (.item()) instead of tensors",
    ),
    "profilers, and looks at stacks or counters": (
        r"torch/profiler/|/(?:tracemalloc|inspect|traceback|linecache)\.py |-packages/(?:psutil|pynvml|GPUtil)/",
        "leave them out of the loop, or let them run in a few steps (schedule= of torch.profiler)",
    ),
}
#: Of the innermost frame.
INNERMOST: Table = {
    "checks of an environment": (r"/gym\w*/\S+checker\.py ", "make the environment with disable_env_checker=True"),
    "a TensorDataset, row by row": (
        r"torch/utils/data/dataset\.py ",
        "index whole batches: for rows in torch.randperm(n).split(size): x[rows]",
    ),
    "walks through the model's parameters": (
        r"torch/nn/modules/module\.py (?:named_\w+|parameters|modules|children|_named_members) ",
        "make list(model.parameters()) once, before the loop",
    ),
    "Python between the modules": (r"torch/nn/modules/module\.py ", "use torch.compile, or fewer and larger modules"),
}
_TABLES = (THROUGH, BELOW, INNERMOST)


def known_of(place: Place | None, *several: Samples) -> Known | None:
    """What is known of most samples at a line, of several threads."""
    return most_at(place, several, known_in)


def mostly_in(known: Known | None) -> str:
    """The end of a headline: ``, mostly in deep copies``."""
    return f", mostly in {known.what}" if known is not None else ""


def known_in(node: Node) -> Known | None:
    """What is known of a stack: by the first table, and in it the first row, that holds of one of its frames."""
    innermost = (node.frame,)
    for table, frames in enumerate((node.frames, node.called or innermost, innermost)):
        rows = [row for frame in frames if (row := _row(table, *frame.code, frame.source, frame.user)) is not None]
        if rows:
            return min(rows)[1]
    return None


@lru_cache(_FRAMES_HELD)
def _row(table: int, file: str, function: str, source: str, user: bool) -> tuple[int, Known] | None:
    """The first row of a table that holds of a frame, and its number."""
    from tuimon.line_syntax import without_comment  # noqa: PLC0415  (loads a parser)

    text = f" {without_comment(source)}" if user else f"{file} {function} {source}"
    rows = enumerate(_TABLES[table].items())
    return next(((n, Known(what, action)) for n, (what, (frame, action)) in rows if re.search(frame, text)), None)
