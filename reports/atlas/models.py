"""Build models of the atlas that no library has by a name: graphs, points, recommendations, text.

Each function returns a model and its inputs. Sizes are those of the paper that a docstring names.
"""

from itertools import pairwise

import torch
from torch import nn

CORA_NODES, CORA_EDGES, CORA_FEATURES, CORA_CLASSES = 2708, 10556, 1433, 7


def cora_graph() -> tuple[torch.Tensor, torch.Tensor]:
    """Return the features of the nodes of Cora, and the two nodes of each edge; zeros for both."""
    features = torch.zeros(CORA_NODES, CORA_FEATURES)
    return features, torch.zeros(2, CORA_EDGES, dtype=torch.int64)


def sum_over_edges(messages: torch.Tensor, receivers: torch.Tensor) -> torch.Tensor:
    """Return the sum of the messages that each node receives: nodes x features."""
    result = messages.new_zeros(CORA_NODES, messages.shape[-1])
    return result.index_add(0, receivers, messages)


class GraphConvolution(nn.Module):
    """A layer of GCN: a product with the weights, then a weighted sum over neighbours."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=False)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: torch.Tensor, edges: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
        """Return nodes x outputs, from the factor of each edge."""
        x = self.linear(x)
        return sum_over_edges(x[edges[0]] * factors[:, None], edges[1]) + self.bias


class GraphSampling(nn.Module):
    """A layer of GraphSAGE with means: a product for the node and one for its neighbours' mean."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.own = nn.Linear(inputs, outputs, bias=False)
        self.neighbours = nn.Linear(inputs, outputs)

    def forward(self, x: torch.Tensor, edges: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
        """Return nodes x outputs, from the factor of each edge."""
        mean = sum_over_edges(x[edges[0]] * factors[:, None], edges[1])
        return self.own(x) + self.neighbours(mean)


class GraphIsomorphism(nn.Module):
    """A layer of GIN: a sum over neighbours, then two products."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(()))
        self.mlp = nn.Sequential(
            nn.Linear(inputs, outputs), nn.ReLU(), nn.Linear(outputs, outputs)
        )

    def forward(self, x: torch.Tensor, edges: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
        """Return nodes x outputs; a sum has no factors."""
        return self.mlp((1 + self.eps) * x + sum_over_edges(x[edges[0]], edges[1]))


class GraphNetwork(nn.Module):
    """Two layers of one kind, with a ReLU between."""

    def __init__(self, layer: type[nn.Module], hidden: int) -> None:
        super().__init__()
        self.first = layer(CORA_FEATURES, hidden)
        self.second = layer(hidden, CORA_CLASSES)

    def forward(self, x: torch.Tensor, edges: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
        """Return nodes x classes."""
        return self.second(torch.relu(self.first(x, edges, factors)), edges, factors)


class GraphAttention(nn.Module):
    """GAT with one layer of 8 heads of 8 features, and one of a head of the classes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(CORA_FEATURES, 64, bias=False)
        self.second = nn.Linear(64, CORA_CLASSES, bias=False)
        self.scores = nn.ParameterList(
            [nn.Parameter(torch.zeros(2, heads, size)) for heads, size in ((8, 8), (1, 7))]
        )

    def attend(self, x: torch.Tensor, edges: torch.Tensor, score: torch.Tensor) -> torch.Tensor:
        """Return the sums over neighbours, weighted by a softmax over the edges of each node."""
        heads, size = score.shape[1:]
        x = x.view(-1, heads, size)
        sender, receiver = (x * score[0]).sum(-1), (x * score[1]).sum(-1)
        logits = nn.functional.leaky_relu(sender[edges[0]] + receiver[edges[1]], 0.2)
        weights = (logits - logits.max()).exp()
        total = sum_over_edges(weights, edges[1])
        messages = x[edges[0]] * (weights / total[edges[1]])[..., None]
        return sum_over_edges(messages.flatten(1), edges[1])

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        """Return nodes x classes."""
        x = nn.functional.elu(self.attend(self.first(x), edges, self.scores[0]))
        return self.attend(self.second(x), edges, self.scores[1])


def graph_model(layer: type[nn.Module], hidden: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Return a network of two such layers and the graph of Cora with a factor for each edge."""
    return GraphNetwork(layer, hidden), (*cora_graph(), torch.zeros(CORA_EDGES))


def gcn() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Return GCN for Cora (Kipf and Welling 2017): 16 hidden features."""
    return graph_model(GraphConvolution, 16)


def graphsage() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Return GraphSAGE with means (Hamilton et al. 2017) for Cora: 128 hidden features."""
    return graph_model(GraphSampling, 128)


def gin() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Return GIN (Xu et al. 2019) for Cora: 64 hidden features."""
    return graph_model(GraphIsomorphism, 64)


def gat() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Return GAT for Cora (Velickovic et al. 2018)."""
    return GraphAttention(), cora_graph()


class PointNet(nn.Module):
    """PointNet without its transforms of inputs and features: shared layers, a maximum, a head."""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 64, 64, 64, 128, 1024)
        shared: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            shared += [nn.Conv1d(inputs, outputs, 1), nn.BatchNorm1d(outputs), nn.ReLU()]
        self.shared = nn.Sequential(*shared)
        self.head = nn.Sequential(
            nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 40)
        )

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        """Return batch x 40 classes from points: batch x 3 x number."""
        return self.head(self.shared(points).amax(-1))


def pointnet() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Return PointNet (vanilla) for ModelNet40 (Qi et al. 2017): 1024 points."""
    return PointNet(), (torch.zeros(1, 3, 1024),)


class DoubleConvolution(nn.Sequential):
    """Two convolutions of 3x3 without padding, each with a ReLU."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, 3), nn.ReLU(), nn.Conv2d(outputs, outputs, 3), nn.ReLU()
        )


class UNet(nn.Module):
    """The U-Net of 2015: four steps down, four up, cropped features next to the upsampled ones."""

    def __init__(self) -> None:
        super().__init__()
        widths = (64, 128, 256, 512, 1024)
        self.down = nn.ModuleList(
            DoubleConvolution(*pair) for pair in zip((1, *widths), widths, strict=False)
        )
        self.up = nn.ModuleList(nn.ConvTranspose2d(w, w // 2, 2, 2) for w in widths[:0:-1])
        self.join = nn.ModuleList(DoubleConvolution(w, w // 2) for w in widths[:0:-1])
        self.head = nn.Conv2d(64, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return batch x 2 x 388 x 388 from an image: batch x 1 x 572 x 572."""
        kept = []
        for block in self.down[:-1]:
            x = block(x)
            kept.append(x)
            x = nn.functional.max_pool2d(x, 2)
        x = self.down[-1](x)
        for up, join in zip(self.up, self.join, strict=True):
            x = up(x)
            other = kept.pop()
            edge = (other.shape[-1] - x.shape[-1]) // 2
            x = join(torch.cat([other[..., edge:-edge, edge:-edge], x], 1))
        return self.head(x)


def unet() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Return U-Net (Ronneberger et al. 2015) for its image of 572x572."""
    return UNet(), (torch.zeros(1, 1, 572, 572),)


class RecommendationModel(nn.Module):
    """DLRM: embeddings of categories, a network for numbers, products of all pairs, a network."""

    def __init__(self, tables: int = 26, rows: int = 1000, size: int = 16) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, size) for _ in range(tables))
        self.bottom = nn.Sequential(
            nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, size)
        )
        pairs = tables * (tables + 1) // 2
        self.top = nn.Sequential(
            nn.Linear(size + pairs, 512),
            nn.ReLU(),
            nn.Linear(512, 256),
            nn.ReLU(),
            nn.Linear(256, 1),
        )

    def forward(self, numbers: torch.Tensor, categories: torch.Tensor) -> torch.Tensor:
        """Return batch x 1 from numbers: batch x 13, and categories: batch x tables."""
        dense = self.bottom(numbers)
        rows = [table(categories[:, index]) for index, table in enumerate(self.tables)]
        vectors = torch.stack([dense, *rows], 1)
        products = vectors @ vectors.transpose(1, 2)
        lower = torch.tril_indices(vectors.shape[1], vectors.shape[1], -1)
        return torch.sigmoid(self.top(torch.cat([dense, products[:, lower[0], lower[1]]], 1)))


def dlrm() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Return DLRM with the layers of Criteo Kaggle (Naumov et al. 2019) for 128 rows."""
    return RecommendationModel(), (torch.zeros(128, 13), torch.zeros(128, 26, dtype=torch.int64))


class RecurrentLanguageModel(nn.Module):
    """An embedding, two layers of LSTM and a head."""

    def __init__(self, words: int = 10_000, width: int = 650) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, 2, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return batch x length x words from tokens: batch x length."""
        return self.head(self.lstm(self.embedding(tokens))[0])


def lstm_language_model() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Return the medium LSTM for Penn Treebank (Zaremba et al. 2014) for its 35 tokens."""
    return RecurrentLanguageModel(), (torch.zeros(1, 35, dtype=torch.int64),)
