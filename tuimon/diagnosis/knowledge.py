"""Public knowledge about the time at a line, found by the library functions that it is in, or by the line's text.

A row has a name for the work (words that follow "40 % in"), a regular expression, and the advice. It applies only
if most of the time at a line is in it. The expression is matched with ``file function source`` for a library's frame,
and with a space and the text for a user's line, as C code has no frames. If the code below Python is sampled, the
library with most of the CPU time decides instead. From public reports and the libraries' own pages, such as
https://wiki.python.org/moin/TimeComplexity, https://github.com/numpy/numpy/issues/16268 (choice),
https://github.com/huggingface/datasets/issues/1755 (indices), https://github.com/pytorch/pytorch/issues/13918 (lists),
.../100347 (attention), .../50584 (derivatives), .../94160 (subclasses);
https://docs.pytorch.org/docs/stable/generated/torch.einsum.html.
"""

from __future__ import annotations

Table = dict[str, tuple[str, str]]
#: The row of loops that only wait; three whose lines reveal more than the libraries that they run.
POLLING = "a polling loop"
UNCHANGED, COMPRESSING = "what stays the same, made again each time", "compressing data"
AUGMENTING = "augmenting images"
#: The row of a layer that may keep its result, if its input stays the same.
PROPAGATED = "features that SGConv propagates again"
#: The row of loops that take one in n items, and of what does so in one line.
READ_WHOLE = "a stream that each worker or rank reads whole"

#: Rows of operations in forward, matched with any frame of a stack; backward, which has no lines, has a part of each.
DIFFERENTIATED: Table = {
    "parametrized weights, recomputed at each use": (
        r"torch/nn/utils/(?:parametri\w+|weight_norm|spectral_norm)\.py ",
        "compute them once a step (with nn.utils.parametrize.cached()), or turn them into plain weights"
        " (remove_parametrizations)",
    ),
    "attention that returns its weights": (
        r"torch/nn/functional\.py multi_head_attention_forward .*\battn_output_weights\b",
        "call nn.MultiheadAttention with need_weights=False: it then uses scaled_dot_product_attention",
    ),
    "nn.Bilinear, which loops over its output features": (
        r"torch/nn/modules/linear\.py forward .*\bbilinear\(|^ .*\b(?:F|functional)\.bilinear\(",
        "multiply by its weight at once: torch.einsum('boj,bj->bo', torch.einsum('bi,oij->boj', x, weight), y)",
    ),
    "MultivariateNormal, which decomposes its covariance": (
        r"torch/distributions/multivariate_normal\.py (?:__init__|_precision_to_scale_tril) ",
        "pass it scale_tril=, or use Independent(Normal(mean, std), 1) if the covariance is diagonal",
    ),
    "attention written out": (r"eager_attention_forward ", "load the model with attn_implementation='sdpa'"),
    "a recurrent cell run position by position": (
        # the text of the latter: h, c = self.cell(x[:, t], (h, c))
        r"torch/nn/modules/rnn\.py forward .*_cell\(|/keras/src/backend/torch/rnn\.py "
        r"| (\w+)[\w, ()]* = [\w.]+\(\w+\[(?::, ?\w+|[a-z]|step|pos|time)(?:, ?(?:[:.]+|None))?\], .*\b\1\b",
        "run the whole sequence with one call of nn.LSTM, nn.GRU or nn.RNN; with another cell, compute everything that"
        " does not depend on its state for all positions at once, before the loop, and take positions with x.unbind(1):"
        " for each x[:, t] backward fills a gradient as large as x",
    ),
    "penalties on all weights, by autograd": (
        r"^ (?!.*\.grad\b).*(?:\*\* ?2|\b(?:square|pow|norm|abs)\().*\bfor \w+(?:, ?\w+)? in \S*parameters\(\)"
        r"|^ .*\b(?:fisher|omega|importance)\w*\[\w+\] \* \(.* - .*(?:\*\* ?2|\bpow\(|\bsquare\()",
        "for squares, set weight_decay of the optimizer; or add the penalty's own gradient with torch._foreach_add_()",
    ),
    "cosine similarities": (
        r"torch/nn/modules/distance\.py forward .*\bcosine_sim|^ .*\bcosine_similarity\(.*(?:\.unsqueeze\(|\bNone)",
        "for all pairs, normalize once and take one product: F.normalize(x, dim=-1) @ F.normalize(y, dim=-1).T",
    ),
    "derivatives of which one column is kept": (
        r"^ .*\bgrad\(.*\)\[0\]\[(?::|\.\.\.), ?-?\d",
        "call autograd.grad() once for each output, and take all columns from its result",
    ),
    "the exact trace of a Jacobian": (
        r"^ .*\bgrad\(.*\[(?::|\.\.\.), ?([a-z]\w*)\].*\)\[0\](?:\.contiguous\(\))?\[(?::|\.\.\.), ?\1\]",
        "estimate it by a single derivative with random signs v (Hutchinson): (grad(y, x, v)[0] * v).sum(1); or compute"
        " all rows at once, with torch.func.vmap()",
    ),
    "low-rank updates added to whole weights": (
        r"^ .*(?:\blora_?[bB]\w*(?:\.\w+)? @ [\w.]*lora_?[aA]|\bweight\b.* \+ .*\w*[bB](?:\.\w+)? @ [\w.]*[aA]\b)",
        "multiply the input by the two small matrices: base(x) + (x @ a.T) @ b.T * scale makes nothing of the size"
        " of the weights, and no gradient of it",
    ),
    "experts that compute on all tokens": (
        r"^ .*(?:\bexperts?(?:\[\w+\])?|\b(\w+))\((?:x|inputs?|hidden_states)\)(?(1) for \1 in [\w.]*experts\b)",
        "if only the top few gates count, give each expert its own tokens: out.index_add_(0, rows, expert(x[rows]))",
    ),
    "convolutions of one sample each": (
        r"^ .*\bconv\dd\(\s*\w+\[(\w+)\b[^\]]*\][^,]*, *[\w.]+\[\1\b",
        "convolve all at once, the samples as groups: F.conv2d(x.view(1, b * c, h, w), w.flatten(0, 1), groups=b)",
    ),
    "products with diagonal matrices": (
        r"^ .*(?:\bdiag(?:_embed)?\([^()]*\) @ |(?:@ |\b(?:b?mm|matmul)\()(?:[\w.]+\.)?diag(?:_embed)?\()",
        "multiply rows and columns instead: d[:, None] * x and x * e[None, :] make no matrix, and take no product",
    ),
    "logits of all positions, of which one is used": (
        r"^ .*\b(?:\w*head|\w*logits|lm_\w+|vocab\w*|fc|out|proj\w*)\(\w+\)\[:, ?-1\b",
        "index the hidden states before the layer: head(x[:, -1])",
    ),
    "products of three or more tensors": (
        r"^ .*\beinsum\(\s*['\"][^'\"]*,[^'\"]*,",
        "multiply two at a time, small results first, or install opt_einsum: without it torch goes from left to right",
    ),
}
#: Other rows matched with any frame of a stack.
THROUGH: Table = {
    READ_WHOLE: (
        r"^ (?:for [^=]+ in (?:enumerate\()?|yield from )(?:\w+\.)?islice\(.*, ?None, ?[a-z_][\w.]*\)"
        r"|-packages/(?:accelerate|transformers|datasets)/\S+ __iter__ (?:for element in self\.dataset|.*\.step\b)",
        "skip the records of other workers or ranks before they are read or decoded: records[worker::workers], or"
        " separate files for each",
    ),
    "transforms of PyTorch Geometric, at each access": (
        r"-packages/torch_geometric/transforms/",
        "pass those that make the same each time as pre_transform=, or apply them once, before the loop",
    ),
    "masks of pruned weights": (
        r"torch/nn/utils/prune\.py ",
        "prune every hundred steps, and make weights plain again (prune.remove()): multiply them by their masks after"
        " each update, under no_grad()",
    ),
    "fake quantization and its observers": (
        r"torch/(?:ao/)?quantization/(?:observer|fake_quantize)\.py ",
        "turn it on for the last epochs only, and model.apply(disable_observer) once the ranges have settled; observe"
        " with MovingAverageMinMaxObserver: HistogramObserver is for calibration after training",
    ),
    PROPAGATED: (
        r"-packages/torch_geometric/nn/conv/ss?g_conv\.py forward .*\b(?:propagate|gcn_norm)\(",
        "set cached=True if it is the first layer and the graph stays the same; or propagate the features of each graph"
        " once, before the training",
    ),
    "loops and degrees of a graph's nodes": (
        r"-packages/torch_geometric/(?:nn/conv/\w+\.py (?:gcn_norm|__norm__) |utils/(?:loop|degree|undirected)\.py )",
        "find them once if the graph stays the same: GCNConv(cached=True); or AddSelfLoops() and GCNNorm() before the"
        " training, and layers without add_self_loops and normalize",
    ),
    "hooks of modules": (
        r"torch/nn/modules/module\.py \S+ .*\bhook\(",
        "register hooks once, not in each step, and remove those that training does not need: handle.remove()",
    ),
    "forward passes made again, for activation checkpointing": (
        r"torch/utils/checkpoint\.py (?:unpack_hook|recompute_fn|backward) ",
        "checkpoint fewer layers, if there is memory for their activations; in configurations of TRL, which turn it on,"
        " set gradient_checkpointing=False",
    ),
    "Jacobians": (
        r"torch/_functorch/eager_transforms\.py wrapper_fn |^ .*\b(?:jacobian|hessian)\(.*\bvectorize ?= ?True",
        "compute them per sample, with vmap(jacrev(f)): those of a whole batch also hold how each sample depends on the"
        " others",
    ),
    "derivatives computed row by row": (r"torch/autograd/functional\.py ", "set vectorize=True, or use torch.func"),
    "transforms of MONAI": (
        r"-packages/monai/(?:transforms|data)/(?!meta_)",
        "keep what is the same in every epoch: monai.data.CacheDataset (with copy_cache=False if no random transform"
        " changes its input) or PersistentDataset, FgBgToIndicesd() for crops included, with the random transforms"
        " last; monai.data.set_track_meta(False) makes plain tensors, if nothing reads their metadata",
    ),
    "operations on a tensor's subclass, each of which goes through Python": (
        r"torch/(?:_tensor|overrides)\.py (?:__torch_function__|handle_torch_function) ",
        "convert them to plain tensors before the model: x.as_subclass(torch.Tensor)",
    ),
    "the search for unused parameters": (
        r"torch/nn/parallel/distributed\.py \w+ .*\bprepare_for_backward\(list\(",
        "leave out find_unused_parameters=True if each step uses all parameters: for it DDP walks through the graph",
    ),
    "copies of the model for nn.DataParallel": (r"torch/nn/parallel/[rs]\w+\.py ", "use DistributedDataParallel"),
    "the length of a loader, which its sampler computes": (
        r"torch/utils/data/dataloader\.py __len__ ",
        "take len(loader) once an epoch, or keep the number of batches in the sampler",
    ),
    "distinct rows, found by sorting rows": (
        r"^ .*\b(?:np|numpy|torch)\.unique\(.*\b(?:axis|dim)=",
        "make one integer of each row's columns, and take unique() of these",
    ),
    "predict() of Keras": (
        r"/keras/src/\S+ \w*predict\w* |^ .*\.predict\(.*\bverbose ?= ?[\d'\"]",
        "call the model itself on a few rows (model(x, training=False) under torch.no_grad()): it makes no dataset",
    ),
    "predictions of the whole evaluation, gathered": (
        r"/transformers/trainer_pt_utils\.py (?:add|\w*concat\w*|\w*numpify\w*|\w*pad\w*) ",
        "keep only what compute_metrics needs, such as logits.argmax(-1): preprocess_logits_for_metrics of the Trainer",
    ),
    "a function called row by row": (
        r"/pandas/core/\S+ (?:apply\w*|iterrows|itertuples|map) |/numpy/lib/\S+ (?:_vectorize\w*|apply_along_axis) ",
        "compute on whole columns or arrays: apply() and np.vectorize() loop in Python",
    ),
}
#: Rows matched with frames below the user's innermost line; or with that line, if it has none below.
BELOW: Table = {
    UNCHANGED: (
        r"[ .]get_(?:added_)?vocab[ (]|/transformers/configuration_utils\.py |/inspect\.py |-packages/omegaconf/",
        "build it once, before the loop, and keep it: vocabularies, signatures, values of a configuration",
    ),
    "masks, grids and windows made anew": (
        r"/transformer\.py \w*square_subsequent_mask "
        r"|^ .*\b(?:tri[ul]\(\s*torch\.(?:ones|full)|meshgrid\(|create_window\()",
        "build them once and keep them (register_buffer()): those of a part are slices of the whole",
    ),
    "layers made in the loop": (
        r"torch/nn/(?:init\.py|modules/\w+\.py (?:__init__|reset_parameters)) ",
        "make them once, in __init__(): no optimizer trains layers that forward makes",
    ),
    "figures of processes": (
        r"-packages/psutil/|^ .*(?:['\"]/proc/|\bgetrusage\()",
        "ask for them rarely, and for cheap ones: memory_info(), not memory_full_info(), which walks through all pages",
    ),
    "one-hot vectors": (
        r"^ .*\bone_hot\(",
        "use the indices: nn.Embedding looks up what nn.Linear makes of one-hot vectors; most losses take indices",
    ),
    "the construction of sparse tensors": (
        r"^ .*\b(?:coalesce|to_sparse\w*|sparse_\w+_tensor)\(",
        "build sparse tensors once, before the loop, if their entries do not change",
    ),
    "arrays copied whole for each append": (
        r"^ ((?:self\.)?\w+) = (?:np|numpy)\.(?:concatenate|append|[hv]?stack)\(\s*[\[(]*\s*\1\b"
        r"|^ (\w+[.\[]\S*) = torch\.(?:cat|concat|[hv]?stack)\(\s*[\[(]\s*\2|^ ([\w.]+) = \3 \+ \["
        r"|/numpy/lib/\S+ append |/pandas/core/reshape/concat\.py |^ .*\bsum\(.*, ?(?:\[\]|\(\))\)",
        "append the parts to a list and join them once (lists with itertools.chain()), where the whole is needed, or"
        " fill an array of its full size",
    ),
    "copies of whole arrays, to take a part": (
        r"^ .*\w\[: ?[\w.]*\]\.(?:copy|clone)\(\)",
        "index first, without copying: x[rows] copies only the rows that are drawn",
    ),
    "searches through a sequence from its start": (
        r"^ .*(?<!os)\.(?:index|remove)\(|^ (?:if|while|return|assert) (?:not )?\w\S* (?:not )?in [\w.]+:?$"
        r"|^ .*\bfor \w+ in [\w.]+ if [^)]* == ",
        "keep a set, or a dict of positions or groups: lists and strings are compared item by item",
    ),
    "lines of a text file, read from its start": (
        r"^ .*(?:\bislice\(|\.readlines\(|\blinecache\.)|/linecache\.py updatecache ",
        "keep the place of each line (tell(), once for all) and seek() to it, or keep the lines in an Arrow table",
    ),
    "searches through whole columns": (
        r"/pandas/core/(?:ops/|arraylike\.py |computation/)|-packages/polars/\S+ filter "
        r"|^ .*(?:\[|(?:where|nonzero)\()\(?self\.[\w.]+ == \w",
        "group the rows once, before the loop: a dict of the positions for each key (groupby().indices), or of the rows"
        " (partition_by(as_dict=True) of polars)",
    ),
    POLLING: (
        r"^ while (?:not )?[\w.]+(?:\(\))?:$"
        r"|^ (?:while|if|elif|return|\w+ =) (?:not )?(?:len\([\w.]+\)(?: (?:[<>=!]|and|or)|:)"
        r"|[\w.]+\.(?:empty|full|qsize|poll)\(\))|/queues?\.py (?:empty|full|_?qsize|(?:get|put)_nowait) ",
        "let it wait: queue.Queue(maxsize), Event.wait(), Condition",
    ),
    "calls of a manager's process": (
        r"/multiprocessing/managers\.py |^<string> __(?:getitem|setitem|contains|len)__ ",
        "keep a dict in each worker, or arrays in shared memory: a manager pickles every request and reply",
    ),
    "counting one by one": (r"^ [\w.]+\[.*\] \+= 1$", "count whole arrays: torch.bincount(), np.bincount()"),
    "sorts": (
        r"^ .*(?:\bsorted\((?!.*\bfor\b)|\.(?:arg)?sort\()",
        "take the first few with topk() or np.argpartition(), and sort whole tensors at once",
    ),
    "shifts of whole lists": (
        r"^ .*(?:\.pop\(0\)|\.insert\(0,|\bdel [\w.]+\[(?:0|:.*)\])|^ ([\w.]+) = \1\[[^:\]]+:\]$",
        "use a deque and its popleft(), or keep the position of the first item and cut the list seldom",
    ),
    "shuffling everything to draw a few": (
        r"^ .*(?:\b(?:np|numpy)\.random\.choice\(.*replace=False|\b(?:permutation|randperm)\(.*\)\[:)",
        "draw with replacement (torch.randint()), or use choice() of np.random.default_rng(), fast if few are drawn",
    ),
    "weighted draws that sum the weights each time": (
        r"^ .*(?:\.choice\(.*\bp=|\bmultinomial\()|/random\.py choices ",
        "draw many at once, or keep the cumulative sums (np.searchsorted), in a tree if weights change",
    ),
    "a tree of priorities, walked node by node": (
        r"^ .*\b(?:_propagate|_retrieve|_reduce_helper|find_prefixsum_idx)\(",
        "keep it in one array and walk all rows of a batch level by level (NumPy), or draw with the cumulative sums",
    ),
    "random draws in Python, one by one": (
        r"n[\d.]+/random\.py |^ .*\b(?:random|rng|generator)\.(?:(?:rand|random|randn)\(\)|choice\([a-z_.]+\)"
        r"|(?:randint|integers)\((?!.*size)[^,()]*(?:\([^()]*\))?(?:,[^,]*)?\)|(?:uniform|normal)\([-\d., ]*\))"
        r"|^ .*\btorch\.rand(?:n?\(1\)|int\([^()]*\(1?,?\)\))",
        "draw whole arrays, for a batch at once; choice() makes an array of a list first, and sample() is slow on a"
        " deque: keep arrays and lists",
    ),
    "draws that decompose their covariance each time": (
        r"^ .*(?:random|rng|generator)\.multivariate_normal\(",
        "decompose it once: mean + rng.standard_normal(size) @ np.linalg.cholesky(covariance).T",
    ),
    "random numbers in float64": (
        r"^ .*\b(?:np|numpy)\.random\.(?:normal|rand|randn|random|standard_normal|uniform)\(",
        "draw float32: torch.randn(), or standard_normal(dtype=np.float32) of np.random.default_rng()",
    ),
    "conversions to arrays or tensors": (
        r"^ .*\b(?:torch\.(?:as_tensor|tensor|\w*Tensor)|(?:np|numpy)\.(?:as)?array)\(",
        "keep numbers in arrays from the start; join rows with torch.from_numpy(np.stack(rows)), not"
        " torch.tensor(rows)",
    ),
    "printing, logging or progress bars": (
        r"torch/_tensor(?:_str\.py|\.py __(?:repr|format)__) |/logging/\w+\.py |-packages/tqdm/\S+ (?!__iter__)"
        r"|^ .*\b(?:print|flush|fsync)\(",
        "log numbers (.item()) instead of tensors, every hundred steps; pass values to logger.debug() as arguments:"
        " an f-string is built even if nothing is written",
    ),
    "numbers read one by one": (
        r"torch/_tensor\.py (?:__iter__|__contains__) |^ .*(?:\]\.item\(\)|\b(?:float|int)\([\w.]+\[[^:\]]*\]\))",
        "compute on whole arrays or tensors, or take all values at once: .tolist()",
    ),
    "items picked by their index, one by one": (
        r"^ .*\[[\w.]+\[\w+\]\S* for \w+ in |^ return [\w.]+\[(?:.* % .*|i|idx|index)\](?:$|,)",
        "take a batch at once from an array (x[indices]); a deque walks to each item: keep a list, or a ring",
    ),
    "deep copies, made object by object": (r"/copy\.py ", "copy only what changes: tensors with .clone()"),
    "parsing text or objects again": (
        r"/(?:json/decoder|csv|ast|_strptime)\.py |/xml/etree/|-packages/(?:bs4|yaml|lxml)/|/pandas/io/|lib/\S+ \w+txt "
        r"|^ .*(?:\b(?:pickle|msgpack|joblib)\.(?:loads?|unpackb)\(|(?<![\w.])eval\(|\.split\((?:\)|['\"]))",
        "parse once, before the training, and keep arrays: np.save(), Arrow, a memory map",
    ),
    "rows and cells looked up by pandas": (
        r"/pandas/core/(?:indexing|series|frame|generic|internals/\w+)\.py ",
        "take the columns out before the loop, as arrays (to_numpy()), and index these",
    ),
    "padding of Python lists": (
        r"/transformers/(?:tokenization_utils_base|data/data_collator)\.py (?:_?pad|pad_\w+|as_tensor|torch_call) ",
        "keep arrays or tensors of each text, and pad these in collate_fn: torch.nn.utils.rnn.pad_sequence()",
    ),
    "searching texts or splitting them into tokens": (
        r"/re(?:/\w+)?\.py |/sre_\w+\.py |/transformers/\S*tokenization_\S+ |-packages/(?:nltk|spacy|jieba)/",
        "clean and tokenize texts once, before the training, in batches and with a fast tokenizer",
    ),
    "whole files of tensors or arrays": (
        r"torch/serialization\.py (?:_?load|_legacy_load) |/numpy/lib/\S+ (?:load|read_array) ",
        "load them once, or map them: np.load(mmap_mode='r'), torch.load(mmap=True); .npz files cannot be mapped",
    ),
    "files opened for each item": (
        r"/h5py/_hl/files\.py |/(?:zipfile|tarfile)(?:/__init__)?\.py (?:_RealGetContents|next|_load|getmembers?) ",
        "open the file once in each worker, and keep it open; unpack a .tar, which has no index",
    ),
    COMPRESSING: (
        r"/(?:gzip|bz2|lzma)\.py (?:write|close) |\bsavez_compressed[ (]|^ .*\b(?:zlib|bz2|lzma|gzip)\.compress\(",
        "write without compression, or at a low level (compresslevel=1): weights and other floats hardly get smaller",
    ),
    "decompressing data": (
        r"/(?:gzip|bz2|lzma|_compression)\.py |^ .*\b(?:zlib|bz2|lzma|gzip|zstd\w*|blosc2?)\.(?:open|decompress)\(",
        "decompress once, before the training, or store it with lz4 or zstd, which are faster to read",
    ),
    "reads from chunked storage": (r"/h5py/_hl/|-packages/zarr/", "store chunks of the size that is read; read slices"),
    "seeks in videos": (
        r"^ .*\bCAP_PROP_POS_\w+",
        "seek once for a clip, and read on: each seek decodes from the key frame before; or keep frames as images",
    ),
    "decoding images in full": (
        r"/PIL/ImageFile\.py load|^ .*\bcv2\.im(?:read|decode)\(",
        "store smaller originals, or decode JPEGs at a part of their size: Image.draft(), cv2.IMREAD_REDUCED_COLOR_2",
    ),
    "resizing or warping images": (
        r"/PIL/Image\.py (?:resize|rotate|transform) |/skimage/transform/|/ndimage/\S*interpol|\bcv2\.(?:resize|warp)",
        "store them at the size that is used, lower the order of interpolation, or warp whole batches as tensors",
    ),
    AUGMENTING: (
        r"-packages/(?:albumentations|imgaug|kornia|torchvision/transforms)/",
        "crop or resize first, so that the rest changes fewer pixels, or change whole batches as tensors",
    ),
    "resampling or analysing signals": (
        r"-packages/(?:librosa|torchaudio/(?:transforms|functional|compliance)|resampy|soxr|scipy/signal)/",
        "keep the files at the rate that is used, or their features; make a transform once, not its kernel each time",
    ),
    "decompositions of matrices": (
        r"^ .*\b(?:svd\w*|eigh?|eigvalsh?|pinv|inv|inverse|matrix_power|cholesky\w*)\(",
        "decompose every 10 or more steps if the matrix changes little; eigh() is faster than svd(), and solve() than"
        " an inverse",
    ),
    "convolutions computed directly": (
        r"/numpy/_?core/numeric\.py (?:convolve|correlate) ",
        "for long kernels use scipy.signal.oaconvolve() or fftconvolve(), or convolve a batch at once as tensors",
    ),
    "recurrences, element by element": (
        r"^ ([\w.]+)\[(\w+)\] = .*\b\1\[\2 ?[+-] ?1\]",
        "compute it once and keep it, or all at once: scipy.signal.lfilter(), cumsum()",
    ),
    "Fourier transforms": (
        r"^ .*\bfft\.\w*fft[2n]?\(",
        "transform lengths with small prime factors only (pad to scipy.fft.next_fast_len(n)), and fixed filters once",
    ),
    "rows of sparse matrices": (r"/scipy/sparse/\w+\.py ", "convert once, to CSR for rows, and take a batch at once"),
    "subgraphs, each taken from the whole graph": (
        r"-packages/torch_geometric/utils/_?(?:k_hop_)?subgraph\.py ",
        "take one for all nodes of a batch (k_hop_subgraph() takes several), or sample with NeighborLoader: each call"
        " walks over all edges",
    ),
    "negative links of a graph, checked against all of its edges": (
        r"-packages/torch_geometric/utils/_negative_sampling\.py ",
        "sort the keys of the edges (row * n + column) once, and look up a few random pairs in each step with"
        " torch.searchsorted(); for a small graph, negative_sampling(method='dense')",
    ),
    "graphs walked in Python": (r"-packages/(?:networkx|rdkit)/", "make arrays of each graph once"),
    "a dataset of Arrow tables": (
        r"-packages/datasets/",
        "take batches instead of rows, in with_format('torch'), and transform them in the collator, as set_transform()"
        " gets Python lists; flatten_indices() after shuffle() or select()",
    ),
    "queries and calls for one item each": (
        r"/requests/api\.py |/urllib/request\.py |^ .*(?:\.(?:execute|fetch(?:one|all))|\blmdb\.open|\btxn\.get)\(",
        "ask for a batch at once, over one connection, session or client that stays open (with lmdb: readahead=False)",
    ),
    "an event loop that waits for answers": (
        r"/asyncio/runners\.py run |/asyncio/base_events\.py run_until_complete ",
        "await all requests of a batch at once (asyncio.gather()), and those of the next batch in a thread meanwhile",
    ),
    "limits of thread pools, set each time": (
        r"-packages/threadpoolctl\.py ",
        "set them once, in worker_init_fn or with OMP_NUM_THREADS=1: each time all loaded libraries are searched",
    ),
    "listing folders": (r"/glob\.py |/os\.py _?walk |^ .*\bos\.(?:listdir|scandir)\(", "list them once"),
    "starting programs": (r"/subprocess\.py ", "use a library, or one program that keeps running"),
    "edit distances, cell by cell": (
        r"/torchmetrics/functional/text/\S+ _?\w*edit_distance|^ (\w+)\[(\w+)\]\[\w+\] = .*\b\1\[\2 ?- ?1\]",
        "measure error rates in evaluation, or every hundred steps, with a library that is compiled, such as rapidfuzz",
    ),
    "metrics computed in the loop": (
        r"-packages/(?:sklearn/metrics/(?!pairwise)|torchmetrics/(?:\w+\.py|(?:functional/)?(?:classification|text|retrieval)/))",
        "collect their inputs (with torchmetrics, in update()), and compute them once, at the end of the epoch",
    ),
    "distances of all pairs": (
        r"/pairwise\.py |/spatial/distance\.py |, ?None\] ?- ?\w+\[|\.unsqueeze\(-?\d\) - [\w.]+\.unsqueeze\(",
        "use torch.cdist(), in parts",
    ),
    "copies or averages of weights, tensor by tensor": (
        r"torch/nn/modules/module\.py \w*state_dict\w* |^ .*\.(?:mul_|lerp_|copy_|add_)\(.*\b(?:decay|tau|ema\w*)\b"
        r"|torch/optim/swa_utils\.py ",
        "list all tensors once, not with state_dict() for each, and use torch._foreach_copy_() or _foreach_lerp_();"
        " pass AveragedModel multi_avg_fn=get_ema_multi_avg_fn(), not avg_fn",
    ),
    "norms of gradients, one by one": (r"^ .*(?:\.grad\b.*norm\(|norm\(.*\.grad\b)", "use torch._foreach_norm()"),
    "checks for NaN": (r"^ .*\bis(?:nan|inf|finite)\(.*\.(?:any|all)\(", "check only the loss, or every 100 steps"),
    "type conversions": (r"(?:=|return) [\w.\[\]]+\.astype\([^()]*\)[ /\d.]*$", "store data in the type that is used"),
    "drawing or logging figures and histograms": (
        r"-packages/(?:matplotlib|seaborn|plotly|tensorboardX?|wandb|mlflow|neptune)/|torch/utils/tensorboard/",
        "log numbers every hundred steps, histograms (add_histogram(), wandb.watch()) and images rarely",
    ),
}
#: Rows matched with the innermost frame.
INNERMOST: Table = {
    "checks of an environment": (r"/gym\w*/\S+checker\.py ", "make the environment with disable_env_checker=True"),
    "a TensorDataset, row by row": (r"torch/utils/data/dataset\.py ", "index whole batches: x[rows]"),
    "walks through the model": (r"torch/nn/modules/module\.py (?:_?named_\w+|\w+s) ", "list its parameters once"),
    "Python between the modules": (r"torch/nn/modules/module\.py ", "use torch.compile, or fewer and larger modules"),
}
#: User code that autograd calls as a hook: whatever it does there, advice on lines does not apply.
SAVED_HOOKS = (
    "hooks that pack and unpack saved tensors",
    "leave out saved_tensors_hooks(){} if there is memory for all activations, or pack only large tensors: forward"
    " packs and backward unpacks each",
)
GRADIENT_HOOKS = (
    "hooks that backward calls",
    "remove hooks{} that training does not need (handle.remove()), or do their work for all gradients at once, after"
    " backward(), with torch._foreach functions",
)
#: Threads of libraries that poll, by their functions, which Python puts into their names; and the remedy.
THREADS = {
    "peak_monitor_func": "set skip_memory_metrics=True in TrainingArguments, its default: otherwise a thread of the"
    " Trainer's reads the memory of the process without a pause",
}
#: Rows by the library with most of the CPU time, or by its kind.
BY_LIBRARY: dict[str, str] = {
    "libjpeg": "decode JPEGs at a part of their size (Image.draft(), cv2.IMREAD_REDUCED_COLOR_2), with TurboJPEG or"
    " torchvision.io, or once, and cache them",
    "FFmpeg": "decode with torchcodec, on a GPU or only the frames that are used, or keep these as images",
    "audio codecs": "read only the part that is used (soundfile.read(start=, frames=)), or keep the files as WAV at the"
    " rate that is used, or their features",
    "codec": "decode once, and cache what is decoded at the size that is used; crop before all other changes",
    "zstd": "decompress once, before the training, or store it with lz4",
    "LZ4, Snappy, Blosc": "decompress once, before the training, and map the file",
    "OpenSSL": "download once, before the training",
    "compression": BELOW["decompressing data"][1],
    "HDF5": "store chunks of the size that is read, with lz4 or not compressed",
    "JSON parsers": "parse with orjson, or once, before the training, and keep arrays: np.save(), Arrow, a memory map",
    "SQLite": "index the columns that it selects by (CREATE INDEX), ask for a batch at once, or read the table into"
    " arrays once",
    "polars": BELOW["searches through whole columns"][1],
    "tokenizers": "tokenize texts once, before the training, in batches",
    "parser": BELOW["parsing text or objects again"][1],
    "python": "vectorise it",
    "torch": "do it for all at once, with one operation over a dimension in place of a loop of small ones",
    "arrays": "keep its results, or give it less to do, as it is vectorised",
    "memory": "copy less, as it moves memory and does not compute (write in place, into a ring buffer or with out=,"
    " take views, keep uint8)",
    "kernel": "keep large arrays and write into them (out=) instead of making new ones, and read less, or what the"
    " caches still hold",
    "system calls": "ask the system for less, in fewer and larger calls, or keep its answers",
}
