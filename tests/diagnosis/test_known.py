"""What is known of a line: each row with stacks that it knows, and with others that look like them."""

import pytest

from tests.diagnosis.cpu import SIDE, run, workers
from tests.session.records import frames, stacks
from tuimon.diagnosis.knowledge import BELOW, DIFFERENTIATED, INNERMOST, THROUGH
from tuimon.diagnosis.known import known_work_at, known_work_in
from tuimon.records import Frame
from tuimon.session.stacks.samples import Sample, Samples
from tuimon.session.stacks.trie import StackNode, Trie

SITE = "/venv/lib/python3.11/site-packages"
MODULE = f"{SITE}/torch/nn/modules/module.py"

#: Rows, each with stacks that it knows (+), and with some of which another row, or none, is true (-). A frame is the
#: text of a line of the user's, or a file with its function and, of some, that text.
CASES = """
parametrized weights, recomputed at each use
  + y = model(x) | site/torch/nn/utils/parametrize.py get_parametrized | return w / w.norm()
  - y = model(x) | site/torch/nn/utils/rnn.py pad_sequence
hooks of modules
  + y = model(x) | site/torch/nn/modules/module.py inner result = hook(self, args, result) | stats[name] = output.std()
  - y = model(x) | site/torch/nn/modules/module.py _call_impl return forward_call(*args) | y = x.exp()
masks of pruned weights
  + y = model(x) | site/torch/nn/modules/module.py inner a = hook(self, args) | site/torch/nn/utils/prune.py __call__
  - y = model(x) | site/torch/nn/utils/rnn.py pad_packed_sequence
fake quantization and its observers
  + y = model(x) | site/torch/nn/modules/module.py inner r = hook(r) | site/torch/ao/quantization/observer.py f
  + y = model(x) | site/torch/ao/quantization/fake_quantize.py forward
  - y = model(x) | site/torch/ao/quantization/stubs.py forward
features that SGConv propagates again
  + x = conv(x, edges) | site/torch_geometric/nn/conv/sg_conv.py forward x = self.propagate(edge_index, x=x)
  + x = conv(x, edges) | site/torch_geometric/nn/conv/ssg_conv.py forward edge_index, edge_weight = gcn_norm(
  - x = conv(x, edges) | site/torch_geometric/nn/conv/sg_conv.py forward | site/torch/nn/modules/linear.py forward
loops and degrees of a graph's nodes
  + x = conv(x, edges) | site/torch_geometric/nn/conv/gcn_conv.py gcn_norm | site/torch_geometric/utils/loop.py add_self
  + x = conv(x, edges) | site/torch_geometric/utils/loop.py add_remaining_self_loops
  - x = conv(x, edges) | site/torch_geometric/nn/conv/gcn_conv.py forward
masks, grids and windows made anew
  + mask = generate_square_subsequent_mask(n) | site/torch/nn/modules/transformer.py _square_subsequent_mask
  + mask = torch.triu(torch.ones(n, n), diagonal=1).bool()
  + ys, xs = torch.meshgrid(torch.arange(h), torch.arange(w), indexing='ij')
  - mask = torch.tril(scores)
  - y = model(x, torch.triu(torch.ones(n, n))) | site/torch/nn/modules/transformer.py forward
layers made in the loop
  + x = nn.Linear(64, 64)(x) | site/torch/nn/modules/linear.py __init__ | site/torch/nn/init.py kaiming_uniform_
  - x = self.linear(x) | site/torch/nn/modules/linear.py forward
attention that returns its weights
  + y = a(x) | site/torch/nn/functional.py multi_head_attention_forward attn_output_weights = softmax(s)
  - y = a(x) | site/torch/nn/functional.py multi_head_attention_forward
nn.Bilinear, which loops over its output features
  + y = self.bilinear(a, b) | site/torch/nn/modules/linear.py forward return F.bilinear(a, b, self.weight)
  + y = F.bilinear(a, b, weight)
  - y = self.bilinear(a, b) | site/torch/nn/modules/linear.py forward
MultivariateNormal, which decomposes its covariance
  + z = MultivariateNormal(mean, cov) | site/torch/distributions/multivariate_normal.py __init__
  - z = Normal(mean, std) | site/torch/distributions/normal.py __init__
draws that decompose their covariance each time
  + x = np.random.multivariate_normal(mean, cov, 64)
  + x = self.rng.multivariate_normal(mean, cov)
  - d = stats.multivariate_normal(mean, cov)
attention written out
  + y = a(x) | site/transformers/models/bert/modeling_bert.py eager_attention_forward
  - y = a(x) | site/transformers/integrations/sdpa_attention.py sdpa_attention_forward
a recurrent cell run position by position
  + model.fit(loader) | site/keras/src/backend/torch/rnn.py rnn | site/keras/src/layers/rnn/lstm.py call
  - model.fit(loader) | site/keras/src/layers/rnn/rnn.py call
  + h, c = self.cell(x[:, t], (h, c)) | i = torch.sigmoid(self.gate(x))
  + c, q = self.cell(rain[:, day, None], z[:, day], c)
  - x = self.blocks[i](x, masks[i])
forward passes made again, for activation checkpointing
  + loss.backward() | site/torch/utils/checkpoint.py unpack_hook | return x.relu()
  - y = checkpoint(block, x) | site/torch/utils/checkpoint.py checkpoint | return x.relu()
Jacobians
  + j = jacrev(f)(x) | site/torch/_functorch/eager_transforms.py wrapper_fn
  + j = jacobian(f, x, create_graph=True, vectorize=True) | site/torch/autograd/functional.py jacobian
  - j = jacobian(f, x) | site/torch/autograd/functional.py jacobian
  - g, loss = grad_and_value(f)(x) | site/torch/_functorch/eager_transforms.py grad_and_value_impl
products with diagonal matrices
  + flow = torch.diag(degree) @ affinity @ torch.diag(wet)
  + x = torch.bmm(torch.diag_embed(scale), x)
  - d = torch.diag(a @ b)
logits of all positions, of which one is used
  + logits = self.lm_head(h)[:, -1] | site/torch/nn/modules/linear.py forward
  - logits = self.lm_head(h[:, -1]) | site/torch/nn/modules/linear.py forward
  - last = self.encoder(x)[:, -1] | site/torch/nn/modules/rnn.py forward
the search for unused parameters
  + y = net(x) | site/torch/nn/parallel/distributed.py _pre self.reducer.prepare_for_backward(list(_find_tensors(o)))
  - y = net(x) | site/torch/nn/parallel/distributed.py _pre self.reducer.prepare_for_backward([])
products of three or more tensors
  + y = torch.einsum("bi,bj,ir->br", a, b, u) | site/torch/functional.py einsum
  - y = torch.einsum("bij,bjk->bik", a, b) | site/torch/functional.py einsum
the exact trace of a Jacobian
  + total = total + torch.autograd.grad(dx[:, i].sum(), x, create_graph=True)[0][:, i]
  + div += grad(f[:, k].sum(), y, create_graph=True)[0].contiguous()[:, k].contiguous()
  - v = torch.autograd.grad(dx, x, noise, create_graph=True)[0] * noise
  - du = torch.autograd.grad(u.sum(), x, create_graph=True)[0][:, i]
low-rank updates added to whole weights
  + weight = self.base.weight + self.scale * (self.b @ self.a)
  + return F.linear(x, self.weight + self.lora_B @ self.lora_A * self.scaling, self.bias)
  + delta = self.lora_B.weight @ self.lora_A.weight
  - return self.base(x) + (x @ self.lora_A.T) @ self.lora_B.T * self.scale
  - y = F.linear(x, self.weight) + noise
experts that compute on all tokens
  + out = out + gate * expert(x)
  + ys = torch.stack([e(x) for e in self.experts], dim=1)
  - out.index_add_(0, rows, expert(x[rows]) * w[rows, None])
  - ys = torch.cat([head(x) for head in self.heads])
  - y = self.experts_norm(x)
convolutions of one sample each
  + outs.append(F.conv2d(x[i : i + 1], kernels[i], padding=self.size // 2))
  + y = F.conv1d(x[b].unsqueeze(0), weight[b], padding=1)
  + return torch.stack([F.conv1d(x[n][None], weight[n])[0] for n in range(len(x))])
  - y = F.conv2d(x[i], self.kernel)
derivatives computed row by row
  + j = jacobian(f, x) | site/torch/autograd/functional.py jacobian
  - j = jacrev(f)(x) | site/torch/_functorch/eager_transforms.py wrapper_fn
operations on a tensor's subclass, each of which goes through Python
  + y = x * 2 | site/torch/_tensor.py __torch_function__
  - y = x.norm() | site/torch/_tensor.py norm
copies of the model for nn.DataParallel
  + y = model(x) | site/torch/nn/parallel/replicate.py replicate
  - y = model(x) | site/torch/nn/parallel/distributed.py forward
a function called row by row
  + f = table.apply(lambda row: score(row), axis=1) | site/pandas/core/frame.py apply | return a * b
  + y = np.vectorize(f)(x) | site/numpy/lib/function_base.py _vectorize_call | return a * b
  - y = table.sum() | site/pandas/core/frame.py sum
what stays the same, made again each time
  + v = self.tokenizer.get_vocab() | site/transformers/tokenization_utils_tokenizers.py get_vocab
  + v = tokenizer.get_vocab()
  + n = cfg.model.depth | site/omegaconf/dictconfig.py __getattr__
  + names = inspect.signature(f).parameters | python/inspect.py signature
  - ids = tokenizer(text) | site/transformers/tokenization_utils_tokenizers.py _encode_plus
figures of processes
  + rss = self.process.memory_full_info().rss | site/psutil/_pslinux.py _parse_smaps_rollup
  + for line in open('/proc/self/status'):
  - rss = self.process.rss
penalties on all weights, by autograd
  + return sum((p ** 2).sum() for p in model.parameters())
  + l1 = sum(w.abs().sum() for n, w in m.named_parameters())
  + loss = loss + (self.fisher[n] * (p - self.old[n]) ** 2).sum()
  - total = sum(p.grad.norm() ** 2 for p in model.parameters())
  - y = self.importance[n] * (x - y).abs()
  - y = (x ** 2).sum()
transforms of PyTorch Geometric, at each access
  + near = hops.nonzero() | site/torch_geometric/transforms/base_transform.py __call__
  - graph = molecules[i] | site/torch_geometric/data/dataset.py __getitem__
copies of whole arrays, to take a part
  + episodes = {k: v[: self.size].copy() for k, v in self.buffers.items()}
  + x = bank[:n].clone()
  - x = self.buffer[rows].copy()
cosine similarities
  + sim = self.similarity(z, z.T) / 0.1 | site/torch/nn/modules/distance.py forward return F.cosine_similarity(x1, x2)
  + sim = F.cosine_similarity(z[:, None], z[None], dim=-1)
  - sim = F.cosine_similarity(a, b)
  - d = self.distance(a, b) | site/torch/nn/modules/distance.py forward
derivatives of which one column is kept
  + return torch.autograd.grad(f, xyt, torch.ones_like(f), create_graph=True)[0][:, 1:2]
  - return torch.autograd.grad(f, xyt, torch.ones_like(f), create_graph=True)[0]
the length of a loader, which its sampler computes
  + lr = i / len(loader) | site/torch/utils/data/dataloader.py __len__ | return len(self.batches())
  - for x in loader: | site/torch/utils/data/dataloader.py __next__ | return iter(self.batches())
predict() of Keras
  + return net.predict(states, verbose=0) | site/keras/src/layers/layer.py __call__
  + q = net.predict(s) | site/keras/src/callbacks/callback_list.py on_predict_batch_end
  - labels = forest.predict(x) | site/sklearn/ensemble/_forest.py predict
  - boxes = detector.predict(x, verbose=False) | site/ultralytics/engine/model.py predict
predictions of the whole evaluation, gathered
  + trainer.train() | site/transformers/trainer_pt_utils.py torch_pad_and_concatenate
  - trainer.train() | site/transformers/trainer_pt_utils.py log_metrics
one-hot vectors
  + x = F.one_hot(items, self.n).float()
  - x = self.one_hot_embedding[items]
  - x = rows @ w  # instead of F.one_hot(items)
the construction of sparse tensors
  + adj = adj.coalesce()
  + a = torch.sparse_coo_tensor(i, v)
  - y = torch.sparse.mm(adj, x)
arrays copied whole for each append
  + ids = sum(documents, [])
  - n = sum(sizes, 1)
  - n = sum(len(d) for d in documents)
  + self.scores = torch.cat([self.scores, scores])
  + xs = np.concatenate((xs, x))
  + xs = np.append(xs, x) | site/numpy/lib/_function_base_impl.py append
  + self.log = self.log + [loss]
  + t = pd.concat([t, row]) | site/pandas/core/reshape/concat.py concat
  - x = torch.cat([x, skip], dim=1)
  - xs = np.concatenate(parts)
  - self.x = torch.cat([self.a, b])
searches through a sequence from its start
  + codes = [letters.index(c) for c in text]
  + if key in self.seen:
  + while key not in taken:
  + rows = [row for row in self.rows if row.label == label]
  - os.remove(path)
  - for key in self.seen:
  - x = x.index_select(0, ids)
  - keep = [k for k in keys]
lines of a text file, read from its start
  + line = next(itertools.islice(file, index, None))
  + line = linecache.getline(self.path, i) | python/linecache.py getline | python/linecache.py updatecache
  + text = open(self.path).readlines()[i]
  - line = file.readline()
searches through whole columns
  + rows = self.frame[self.frame['user'] == user] | site/pandas/core/ops/common.py new_method
  + rows = self.frame.filter(pl.col('user') == user) | site/polars/dataframe/frame.py filter
  + rows = np.flatnonzero(self.labels == label)
  + x = self.x[self.labels == label]
  - z = z[y == label]
  - frame = frames.loc[user] | site/pandas/core/indexing.py __getitem__
a polling loop
  + while not self.stopped:
  + if len(self.ready) < 8:
  + while queue.empty():
  + while self.is_full(): | python/queue.py full
  + short = len(self.ready) < self.depth
  + x = self.queue.get_nowait() | python/queue.py get_nowait | python/queue.py get
  - x = queue.get() | python/queue.py get
  - while not self.stopped: | x = x.exp()
  - while error > 1e-6:
  - if mask.any():
  - return len(self.rows)
  - if len(words) % 2:
calls of a manager's process
  + x = cache[i] | python/multiprocessing/managers.py _callmethod
  + x = cache[i] | <string> __getitem__
  - x = self.queue.get() | python/multiprocessing/queues.py get
counting one by one
  + self.matrix[t, p] += 1
  - x[mask] += noise
  - step += 1
sorts
  + order = x.sort(dim=-1)[1]
  + rank = np.argsort(scores)
  + for a in sorted(found):
  - best = x.topk(16)
  - self.sorted = True
  - best = sorted(score(x) for x in found)
random numbers in float64
  + noise = np.random.normal(0.0, 1.0, size=x.shape)
  + return numpy.random.rand(64, 64)
  - rows = np.random.randint(9, size=4)
  - noise = rng.standard_normal(9, dtype=np.float32)
decompositions of matrices
  + u, s, v = torch.linalg.svd(matrix)
  + w = np.linalg.inv(cov) @ mean
  + chol = k.cholesky()
  - self.inverted = invert(x)
  - x = torch.linalg.solve(a, b)
  - y = cholesky_factor @ x
shifts of whole lists
  + self.ids = self.ids[self.block:]
  + del kept[:n]
  - tail = ids[n:]
  + self.items.pop(0)
  + queue.insert(0, item)
  + del self.items[0]
  - self.items.pop()
  - table.insert(10, x)
  - del self.items[-1]
shuffling everything to draw a few
  + i = np.random.choice(self.size, size=64, replace=False)
  + i = torch.randperm(n)[:64]
  - i = rng.choice(self.size, size=64, replace=False)
  - order = torch.randperm(n)
weighted draws that sum the weights each time
  + i = np.random.choice(n, size=64, p=self.p)
  + i = torch.multinomial(self.weights, 1)
  + i = random.choices(ids, weights=w) | python/random.py choices
  - i = np.random.choice(n, size=64)
a tree of priorities, walked node by node
  + self._propagate(parent, change)
  + return self._retrieve(left, s)
  - rows = self.tree.retrieve(s)
random draws in Python, one by one
  + other = np.random.randint(self.n_items)
  + j = rng.integers(0, len(self.x))
  + x = np.random.choice(self.items)
  + if torch.rand(1) < self.p:
  - i = np.random.randint(0, n, size=64)
  - i = np.random.randint(0, n, 64)
  - x = np.random.rand(64, 3)
  + batch = random.sample(self.memory, 64) | python/random.py sample
  - batch = self.sample(64) | site/torch/random.py fork_rng
conversions to arrays or tensors
  + x = torch.tensor(rows)
  + x = np.array([r.values for r in rows])
  + x = torch.FloatTensor(batch)
  - x = torch.from_numpy(rows)
  - x = torch.tensor_split(x, 3)
  - x = np.array_split(x, 3)
numbers read one by one
  + for p, t in zip(predicted, true): | site/torch/_tensor.py __iter__
  + total += losses[i].item()
  + hits += int(found[i])
  - total += loss.item()
  - y = float(x[2:8].sum())
items picked by their index, one by one
  + batch = [self.memory[i] for i in drawn]
  + return self.items[(self.oldest + i) % len(self.items)]
  + return self.x[i], self.y[i]
  - x = self.x[rows]
  - y = [f(i) for i in drawn]
  - return x[:, i]
  - k = i % len(self.items)
  - x = f(self.x[i % len(self.x)])
deep copies, made object by object
  + self.average = copy.deepcopy(model) | python/copy.py deepcopy | site/torch/_tensor.py __deepcopy__
  - shutil.copy(a, b) | python/shutil.py copy
rows and cells looked up by pandas
  + row = self.table.iloc[i] | site/pandas/core/indexing.py __getitem__
  - means = self.table.groupby('id').mean() | site/pandas/core/groupby/groupby.py mean
parsing text or objects again
  + item = json.loads(line) | python/json/__init__.py loads | python/json/decoder.py raw_decode
  + t = pd.read_csv(path) | site/pandas/io/parsers/readers.py read_csv | site/pandas/core/frame.py f
  + box = eval(text)
  + item = pickle.loads(blob)
  + words = line.split()
  - json.dump(x, f) | python/json/__init__.py dump | python/json/encoder.py f
  - model.eval()
  - a, b = x.split(64, dim=1)
  - pickle.dump(state, file)
padding of Python lists
  + trainer.train() | site/transformers/tokenization_utils_base.py as_tensor
  + trainer.train() | site/transformers/data/data_collator.py torch_call
  - ids = tokenizer(text) | site/transformers/tokenization_utils_base.py __call__
searching texts or splitting them into tokens
  + text = re.sub('<.*?>', '', text) | python/re/__init__.py sub
  + ids = tokenizer(text) | site/transformers/tokenization_utils.py tokenize
  - y = model(ids) | site/transformers/models/bert/modeling_bert.py forward
whole files of tensors or arrays
  + x = torch.load(path) | site/torch/serialization.py load
  + x = np.load(path) | site/numpy/lib/_npyio_impl.py load | site/numpy/lib/format.py read_array
  - torch.save(x, path) | site/torch/serialization.py save
files opened for each item
  + z = ZipFile(path) | python/zipfile.py __init__ | python/zipfile.py _RealGetContents
  + f = h5py.File(path) | site/h5py/_hl/files.py make_fid
  - data = self.zip.read(name) | python/zipfile.py read
compressing data
  + torch.save(state, archive) | site/torch/serialization.py _save | python/gzip.py write
  + np.savez_compressed(path, x=x) | site/numpy/lib/_npyio_impl.py savez_compressed
  + blob = zlib.compress(data)
  - data = gzip.open(path).read() | python/gzip.py read
decompressing data
  + data = gzip.open(path).read() | python/gzip.py read
  + data = zlib.decompress(blob)
  - blob = zlib.compress(data)
reads from chunked storage
  + x = self.file['x'][rows] | site/h5py/_hl/dataset.py __getitem__
  - x = self.data['x'][rows]
a stream that each worker or rank reads whole
  + yield from islice(self.records(), info.id, None, info.num_workers) | yield decode(packed)
  + for x in itertools.islice(self.records(), rank, None, world): | yield decode(packed)
  + for x in loader: | site/accelerate/data_loader.py __iter__ for element in self.dataset: | x = decode(packed)
  + for x in loader: | site/datasets/iterable_dataset.py __iter__ batch = list(islice(ex_iterator, self.step))
  - for x in loader: | site/accelerate/data_loader.py __iter__ | x = decode(packed)
  - yield from (decode(x) for x in islice(self.packed, rank, None, world)) | return zlib.decompress(x)
  - for x in map(decode, islice(self.packed, rank, None, world)): | return unpack(x)
  - for x in islice(self.records(), 0, None, 10): | return unpack(x)
seeks in videos
  + video.set(cv2.CAP_PROP_POS_FRAMES, n)
  - ok, frame = video.read()
decoding images in full
  + x = Image.open(path).resize((224, 224)) | site/PIL/Image.py resize | site/PIL/ImageFile.py load
  + x = cv2.imread(path)
  - x.save(path) | site/PIL/ImageFile.py _encode_tile
resizing or warping images
  + x = x.resize((224, 224)) | site/PIL/Image.py resize
  + x = ndimage.rotate(x, 9) | site/scipy/ndimage/_interpolation.py affine_transform
  - x = ndimage.label(x) | site/scipy/ndimage/_measurements.py label
resampling or analysing signals
  + x, _ = librosa.load(path) | site/librosa/core/audio.py load
  - y = model(x) | site/torchaudio/models/conformer.py forward
convolutions computed directly
  + wet = np.convolve(speech, room) | site/numpy/_core/numeric.py convolve
  - wet = fftconvolve(speech, room) | site/scipy/signal/_signaltools.py fftconvolve
recurrences, element by element
  + returns[t] = rewards[t] + gamma * returns[t + 1]
  + self.level[i] = a * x[i] + (1 - a) * self.level[i-1]
  - y[t] = x[t] + x[t + 1]
distinct rows, found by sorting rows
  + v, i = np.unique(c, axis=0) | site/numpy/lib/_arraysetops_impl.py _unique1d
  + v = torch.unique(coords, dim=0)
  - v = np.unique(keys) | site/numpy/lib/_arraysetops_impl.py _unique1d
  - v = self.unique(keys, dim=0)
augmenting images
  + x = augment(image=x) | site/albumentations/core/composition.py __call__ | site/albucore/functions.py add
  + x = self.transform(x) | site/torchvision/transforms/v2/_color.py transform
  - x = x.resize((224, 224)) | site/torchvision/transforms/functional.py resize | site/PIL/Image.py resize
Fourier transforms
  + spectrum = torch.fft.rfft(x, n=n) * torch.fft.rfft(k, n=n)
  + f = np.fft.fft2(image)
  - y = fft_length(n)
  - n = scipy.fft.next_fast_len(n)
transforms of MONAI
  + for batch in loader: | site/monai/data/dataset.py __getitem__ | site/torch/_tensor.py __torch_function__
  - y = model(x) | site/monai/data/meta_tensor.py __torch_function__ | site/torch/_tensor.py __torch_function__
  + for batch in loader: | site/monai/data/dataset.py __getitem__ | site/monai/transforms/io/array.py a
  - y = model(x) | site/monai/networks/nets/unet.py forward
rows of sparse matrices
  + x = self.matrix[i].toarray() | site/scipy/sparse/_index.py __getitem__
  - v = eigsh(x) | site/scipy/sparse/linalg/_eigen/arpack.py eigsh
subgraphs, each taken from the whole graph
  + near = k_hop_subgraph(node, 2, edges) | site/torch_geometric/utils/_subgraph.py k_hop_subgraph
  - near = next(loader) | site/torch_geometric/loader/node_loader.py collate_fn
negative links of a graph, checked against all of its edges
  + pairs = negative_sampling(edges, n) | site/torch_geometric/utils/_negative_sampling.py negative_sampling
  - pairs = torch.randint(n, (2, 64)) | site/torch_geometric/utils/_scatter.py scatter
graphs walked in Python
  + d = nx.shortest_path_length(g) | site/networkx/algorithms/shortest_paths/generic.py shortest_path
  - d = graph.distances()
a dataset of Arrow tables
  + for batch in loader: | site/datasets/arrow_dataset.py __getitem__
  - for batch in loader: | /home/me/datasets/arrow.py __getitem__ return x
queries and calls for one item each
  + row = self.db.execute(QUERY, (i,))
  + r = requests.get(url) | site/requests/api.py get
  - r = self.session.get(url) | site/requests/sessions.py get
  - x = self.cache.get(key)
an event loop that waits for answers
  + x = asyncio.run(batch(ids)) | python/asyncio/runners.py run | python/selectors.py select
  + x = loop.run_until_complete(batch(ids)) | python/asyncio/base_events.py run_until_complete
  - x = await store.get(i) | python/asyncio/streams.py readexactly
limits of thread pools, set each time
  + with threadpool_limits(1): | site/threadpoolctl.py __init__
  - with threadpool_limits(1):
listing folders
  + names = os.listdir(folder)
  + names = glob.glob(p) | python/glob.py glob
  - names = sorted_names[i]
starting programs
  + subprocess.run(['ffmpeg', path]) | python/subprocess.py run
  - run(path)
edit distances, cell by cell
  + self.cer.update(texts, truth) | site/torchmetrics/functional/text/helper.py _edit_distance
  + table[i][j] = min(table[i - 1][j], table[i][j - 1]) + 1
  - self.bleu.update(texts, truth) | site/torchmetrics/functional/text/bleu.py _bleu_score_update
  - table[i][j] = a[i] * b[j]
metrics computed in the loop
  + auc = roc_auc_score(y, p) | site/sklearn/metrics/_ranking.py roc_auc_score
  - loss = ssim(x, y) | site/torchmetrics/functional/image/ssim.py ssim
distances of all pairs
  + d = pairwise_distances(x) | site/sklearn/metrics/pairwise.py pairwise_distances
  + d = (x[:, None] - y[None]).pow(2).sum(-1)
  + d=(x[:,None]-y[None]).norm(dim=-1)
  + d = ((x.unsqueeze(1) - self.y.unsqueeze(0)) ** 2).sum(-1)
  - d = (x - y).pow(2).sum(-1)
  - i = KDTree(x).query(y) | site/scipy/spatial/_kdtree.py query
copies or averages of weights, tensor by tensor
  + trainer.fit(model) | site/torch/optim/swa_utils.py update_parameters
  - trainer.fit(model) | site/torch/optim/adamw.py step
  + a.mul_(decay).add_(p, alpha=1 - decay)
  + target.load_state_dict(net.state_dict()) | site/torch/nn/modules/module.py load_state_dict
  - x.mul_(scale)
  - p.mul_(1 - lr * weight_decay)
norms of gradients, one by one
  + total += p.grad.norm() ** 2
  + n = torch.norm(p.grad)
  - x = self.norm(x)
checks for NaN
  + assert not torch.isnan(p).any()
  + ok = ok and p.grad.isfinite().all()
  - x = torch.nan_to_num(x)
type conversions
  + x = x.astype(np.float32)
  + return self.x[i].astype('f4') / 255
  - x = np.convolve(x, k).astype(np.float32)
drawing or logging figures and histograms
  + writer.add_histogram('w', w, step) | site/torch/utils/tensorboard/summary.py make_histogram
  + fig.savefig(path) | site/matplotlib/figure.py savefig
  - h = torch.histc(w)
printing, logging or progress bars
  + print(step, loss)
  + log.info('%s', x) | python/logging/__init__.py info | site/torch/_tensor.py __iter__
  + log.debug(f'w {w}') | site/torch/_tensor.py __format__ | site/torch/_tensor.py __repr__
  + bar.set_postfix(loss=loss) | site/tqdm/std.py set_postfix
  + for x in tqdm(loader): | site/tqdm/std.py __iter__ | site/tqdm/std.py refresh
  - for x in tqdm(loader): | site/tqdm/std.py __iter__ | site/torch/utils/data/_utils/fetch.py fetch
  - for x in tqdm(loader): | site/tqdm/std.py __iter__ | x = load(i)
  - blueprint(x)
checks of an environment
  + env.step(a) | site/gymnasium/utils/passive_env_checker.py check_obs
  - env.step(a) | site/gymnasium/utils/passive_env_checker.py env_step | site/gymnasium/envs/a.py step
a TensorDataset, row by row
  + for x, y in loader: | site/torch/utils/data/dataset.py <genexpr>
  - for x, y in loader: | site/torch/utils/data/dataset.py __getitem__ | return self.x[i]
walks through the model
  + for p in model.parameters(): | site/torch/nn/modules/module.py _named_members
  - for p in self.weights:
Python between the modules
  + y = model(x) | site/torch/nn/modules/module.py _call_impl
  - y = model(x) | site/torch/nn/modules/module.py _call_impl | site/torch/nn/modules/linear.py forward
"""


def stack(text: str) -> StackNode:
    """One of the stacks above, called by ``main()``."""
    table, listed = Trie(), []
    for number, frame in enumerate(["main()", *text.split(" | ")]):
        file, *rest = frame.split(" ", 2)
        if file.startswith(("site/", "python/", "/", "<")):
            function, source = (*rest, "")[:2]
            path = file.replace("site/", f"{SITE}/").replace("python/", "/usr/lib/python3.11/")
            listed.append(Frame(path, 10 + number, function, source, file.startswith("/home/")))
        else:
            listed.append(Frame("/home/me/train.py", 10 + number, "work", frame, True))
    table.add_frames(0, listed)
    return table.node(range(len(listed)))


def cases():
    """``(row, a stack, whether the row knows it)``."""
    row = ""
    for line in CASES.strip().splitlines():
        if line.startswith("  "):
            yield row, line[4:], line[2] == "+"
        else:
            row = line


def test_each_row_has_its_cases():
    rows = {*DIFFERENTIATED, *THROUGH, *BELOW, *INNERMOST}
    assert all({row for row, _, knows in cases() if knows is known} == rows for known in (True, False))


@pytest.mark.parametrize(("row", "text", "is_known"), cases())
def test_a_row_knows_its_stacks_and_not_their_like(row, text, is_known):
    found = known_work_in(stack(text))
    assert (found is not None and found.what == row) is is_known


@pytest.mark.parametrize(("at_sort", "known"), [(6, "checks for NaN"), (5, "checks for NaN"), (4, None)])
def test_a_line_is_known_by_most_of_its_samples(at_sort, known):
    """The others are in what the line calls, of which nothing is known."""
    trie = Trie()
    line = Frame("train.py", 1, "main", "ok = f(x.isnan().any())", True)
    trie.add_frames(0, [line, Frame(f"{SITE}/torch/_tensor.py", 2, "norm")])
    alone, inside = trie.node([0]), trie.node([0, 1])
    samples = Samples((Sample(alone, at_sort, "other"), Sample(inside, 10 - at_sort, "other")))
    found = known_work_at(alone.place, samples)
    assert (found.what if found is not None else None) == known
    assert known_work_at(None, samples) is None


DRAWS = frames(
    ("data.py", 9, "draw", "rows = np.random.choice(self.size, size=64, replace=False)", True),
    ("train.py", 49, "main", "extra = data.draw()", True),
    ("train.py", 46, "main", "loss.backward()", True),
    ("/lib/site-packages/torch/_tensor.py", 600, "backward"),
    ("train.py", 70, "evaluate", "right += hits(model(data.draw()))", True, "", "", (68, 72)),
    (MODULE, 99, "_call_impl"),
    ("train.py", 50, "main", "requests.post(url, json=losses)", True),
    (f"{SITE}/requests/api.py", 115, "post"),
    (f"{SITE}/urllib3/connectionpool.py", 790, "urlopen"),
    first=30,
)
MADE, BACKWARD = ([3, 4, 30], 60), ([32, 33], 40)


@pytest.mark.parametrize(
    ("phases", "records", "rule"),
    [
        ({"data": 80, "forward": 20}, [stacks(12, MADE, BACKWARD)], "input_bound"),
        ({"data": 80, "forward": 20}, [stacks(12, BACKWARD), *workers(2, 1.0, ([0, 30], 60))], "input_bound"),
        (SIDE, [stacks(12, ([31, 30], 30), BACKWARD)], "side_work"),
        ({**SIDE, "eval": 60}, [stacks(12, ([34, 30], 40), ([34, 35], 20), BACKWARD)], "side_work"),
    ],
)
def test_a_finding_says_what_is_known_of_its_line_and_what_to_do(phases, records, rule):
    finding = next(each for each in run(phases, DRAWS, *records) if each.rule == rule)
    assert finding.headline.endswith("above all in shuffling everything to draw a few")
    assert any("choice() of np.random.default_rng()" in fix.action for fix in finding.fixes)


def test_calls_over_the_network_may_be_known_as_well():
    finding = next(
        each for each in run(SIDE, DRAWS, stacks(12, ([36, 37, 38], 30), BACKWARD)) if each.rule == "side_work"
    )
    assert finding.cause == "network" and finding.headline.endswith("above all in queries and calls for one item each")
    assert "session or client that stays open" in finding.action
