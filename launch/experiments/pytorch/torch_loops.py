"""The shipped models as plain PyTorch loops, to be measured beside ours; no federation around them.

Run by another Python, which has PyTorch and nothing of this project:

    python torch_loops.py MODEL ARRAYS.npz THREADS LAYOUT

The arrays are our weights `w0`, `w1`, ... in our order and form, and the batches `x0`, `y0`, `x1`,
... of a round, `client` (each batch's client) and `learning_rate`. It prints the loss of the first
batch under these weights, without dropout; then, for each line it reads, trains a round (every
client from these weights, plain SGD) and prints a line when it is done.
"""

import math
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class TorchEmnistCnn(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.conv_1 = loaded(nn.Conv2d(1, 32, 3), convolution(w[0]), w[1])
        self.conv_2 = loaded(nn.Conv2d(32, 64, 3), convolution(w[2]), w[3])
        # Ours flattens height, width, channels; PyTorch channels first.
        hidden = w[4].reshape(12, 12, 64, 128).transpose(3, 2, 0, 1).reshape(128, -1)
        self.hidden = loaded(nn.Linear(9216, 128), hidden, w[5])
        self.logits = loaded(nn.Linear(128, len(w[7])), w[6].T, w[7])

    def forward(self, x):
        x = F.relu(self.conv_2(F.relu(self.conv_1(x))))
        x = F.dropout(F.max_pool2d(x, 2), 0.25, self.training).flatten(1)
        return self.logits(F.dropout(F.relu(self.hidden(x)), 0.5, self.training))


class TorchStackoverflowLstm(nn.Module):
    def __init__(self, w):
        super().__init__()
        units = w[2].shape[0]
        self.embedding = loaded(nn.Embedding(*w[0].shape), w[0])
        self.lstm = nn.LSTM(w[1].shape[0], units, batch_first=True)
        self.lstm.bias_hh_l0.requires_grad_(False)
        weights = (w[1].T, w[2].T, w[3], 0 * w[3])
        for parameter, array in zip(self.lstm.parameters(), weights, strict=True):
            parameter.data = torch.tensor(array).contiguous()
        self.projection = loaded(nn.Linear(units, 96), w[4].T, w[5])
        self.logits = loaded(nn.Linear(96, w[0].shape[0]), w[6].T, w[7])

    def forward(self, x):
        return self.logits(self.projection(self.lstm(self.embedding(x))[0]))


class TorchBlock(nn.Module):
    def __init__(self, take, expansion, stride):
        super().__init__()
        self.expand = ConvNorm(take, F.relu6) if expansion > 1 else nn.Identity()
        self.depthwise = ConvNorm(take, F.relu6, stride, is_depthwise=True)
        self.project = ConvNorm(take, lambda x: x)
        self.is_residual = False

    def forward(self, x):
        h = self.project(self.depthwise(self.expand(x)))
        return x + h if self.is_residual else h


class ConvNorm(nn.Module):
    def __init__(self, take, activation, stride=1, is_depthwise=False):
        super().__init__()
        kernel, gamma, beta = take(3)
        array = convolution(kernel)
        array = array.transpose(1, 0, 2, 3) if is_depthwise else array
        self.pads, size = stride == 2, array.shape[2]
        self.conv = nn.Conv2d(
            array.shape[0] if is_depthwise else array.shape[1], array.shape[0], size, stride,
            0 if self.pads else size // 2, bias=False,
            groups=array.shape[0] if is_depthwise else 1,
        )  # fmt: skip
        loaded(self.conv, array)
        self.norm = loaded(nn.GroupNorm(8, len(gamma), eps=1e-3), gamma, beta)
        self.activation = activation

    def forward(self, x):
        # TensorFlow's "same" of an even side and stride 2 pads below and at the right.
        x = F.pad(x, (0, 1, 0, 1)) if self.pads else x
        return self.activation(self.norm(self.conv(x)))


class TorchMobileNetV2(nn.Module):
    ROWS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
            (6, 160, 3, 2), (6, 320, 1, 1))  # fmt: skip

    def __init__(self, w):
        super().__init__()
        rest = iter(w)

        def take(n):
            return [next(rest) for _ in range(n)]

        self.stem = ConvNorm(take, F.relu6, 2)
        blocks, before = [], 32
        for expansion, channels, count, stride in self.ROWS:
            for i in range(count):
                blocks.append(TorchBlock(take, expansion, stride if i == 0 else 1))
                blocks[-1].is_residual = i > 0 or (stride == 1 and before == channels)
                before = channels
        self.blocks = nn.Sequential(*blocks)
        self.last = ConvNorm(take, F.relu6)
        kernel, bias = take(2)
        self.logits = loaded(nn.Linear(*kernel.shape), kernel.T, bias)

    def forward(self, x):
        return self.logits(self.last(self.blocks(self.stem(x))).mean((2, 3)))


class TorchTedTransformer(nn.Module):
    def __init__(self, w):
        super().__init__()
        self.embedding = loaded(nn.Embedding(*w[0].shape), w[0])
        names = "project_in query key value attended norm_1 hidden output norm_2 out"
        for i, name in enumerate(names.split()):
            kernel, bias = w[1 + 2 * i], w[2 + 2 * i]
            if "norm" not in name:
                setattr(self, name, loaded(nn.Linear(*kernel.shape), kernel.T, bias))
        self.norm_1 = loaded(nn.LayerNorm(512, eps=1e-6), w[11], w[12])
        self.norm_2 = loaded(nn.LayerNorm(512, eps=1e-6), w[17], w[18])
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        batch, time = x.shape
        angles = torch.arange(time)[:, None] * 10_000.0 ** (-torch.arange(0, 96, 2) / 96)
        positions = torch.stack([angles.sin(), angles.cos()], -1).reshape(time, 96)

        def heads(h):
            return h.reshape(batch, time, 8, 64).transpose(1, 2)

        h = self.drop(self.project_in(self.embedding(x) * math.sqrt(96) + positions))
        mixed = F.scaled_dot_product_attention(
            heads(self.query(h)), heads(self.key(h)), heads(self.value(h)), is_causal=True
        )
        mixed = mixed.transpose(1, 2).reshape(batch, time, 512)
        h = self.norm_1(h + self.drop(self.attended(mixed)))
        h = self.norm_2(h + self.drop(self.output(F.relu(self.hidden(h)))))
        return self.out(h) @ self.embedding.weight.T


def convolution(kernel):
    """Returns a kernel [height, width, in, out] in PyTorch's order."""
    return kernel.transpose(3, 2, 0, 1)


def loaded(module, *arrays):
    """Returns a module with these weights."""
    for parameter, array in zip(module.parameters(), arrays, strict=True):
        assert parameter.shape == array.shape, (parameter.shape, array.shape)
        parameter.data = torch.tensor(np.ascontiguousarray(array))
    return module


def loss_of(logits, y):
    """Returns the mean cross entropy; of tokens, padding (0) does not count."""
    ignored = -100 if y.dim() == 1 else 0
    return F.cross_entropy(logits.flatten(0, -2), y.flatten(), ignore_index=ignored)


def main():
    name, path, threads, layout = sys.argv[1:]
    torch.set_num_threads(int(threads))
    arrays = np.load(path)
    weights = [arrays[f"w{i}"] for i in range(sum(key.startswith("w") for key in arrays))]
    model = globals()[f"Torch{name}"](weights)
    clients = arrays["client"].tolist()
    xs = [torch.tensor(arrays[f"x{i}"]) for i in range(len(clients))]
    xs = [x if x.is_floating_point() else x.long() for x in xs]
    if layout != "plain":
        model = model.to(memory_format=getattr(torch, layout))
        xs = [x.permute(0, 3, 1, 2).clone(memory_format=getattr(torch, layout)) for x in xs]
    ys = [torch.tensor(arrays[f"y{i}"]).long() for i in range(len(clients))]
    start = [p.detach().clone() for p in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), float(arrays["learning_rate"]))
    with torch.no_grad():
        print(float(loss_of(model.eval()(xs[0]), ys[0])), flush=True)
    model.train()
    for _ in sys.stdin:
        before = None
        for client, x, y in zip(clients, xs, ys, strict=True):
            if client != before:
                with torch.no_grad():
                    for parameter, value in zip(model.parameters(), start, strict=True):
                        parameter.copy_(value)
            before = client
            optimizer.zero_grad()
            loss_of(model(x), y).backward()
            optimizer.step()
        print("done", flush=True)


if __name__ == "__main__":
    main()
