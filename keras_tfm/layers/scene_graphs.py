"""Graphs of the objects in a picture and of the relations between them, as Graph R-CNN learns them.

    objects      o0        o1        o2     an object hears of all others, of the relations whose
                  |       |  |       |      subject it is, and of the relations whose object it is;
    relations     [o0 -> o1] [o1 -> o2]     a relation hears of its subject and of its object

Yang et al. 2018, "Graph R-CNN for Scene Graph Generation", sections 3.2 to 3.4. Where the authors' code takes
plain means of messages, this is the paper's attention. `heads.best_pairs` chooses the relations.
"""

from typing import Any

from keras import ops

from keras_tfm.layers.attention.tap import tap
from keras_tfm.layers.base import SameShape, WithoutMask, require_sizes
from keras_tfm.layers.chain import Chain
from keras_tfm.layers.dense import Dense
from keras_tfm.layers.masks import masked_softmax
from keras_tfm.layers.signatures import Tensor


class RelationProposal(WithoutMask):
    """How related each object i is, as the subject, to each other object j: (B, N, D) -> (B, N, N), 0 to 1.

    It is sigmoid(f(x_i) · g(x_j)), where f and g are two dense layers each; x is the distribution of an
    object's classes in the paper, section 3.2. It is 0 of an object to itself and where either is hidden. All
    N² pairs cost as much as N objects and one product.

    >>> keras_tfm.layers.RelationProposal(hidden_dim=4)(np.ones((1, 5, 8))).shape
    TensorShape([1, 5, 5])
    """

    def __init__(self, hidden_dim: int = 64, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_sizes(hidden_dim=hidden_dim)
        self.hidden_dim = hidden_dim
        self.subject, self.object = (Chain([Dense(hidden_dim, "relu"), Dense(hidden_dim)]) for _ in range(2))

    def build(self, x_shape):
        self.subject.build(x_shape)
        self.object.build(x_shape)

    def call(self, x, mask=None):
        """(B, N, D) -> (B, N, N), row i for the subject; `mask` (B, N) hides objects."""
        scores = ops.einsum("bih,bjh->bij", self.subject(x), self.object(x))
        related = ops.sigmoid(scores) * ops.cast(others(x), scores.dtype)
        if mask is None:
            return related
        shown = ops.cast(mask, related.dtype)
        return related * shown[:, :, None] * shown[:, None]

    def compute_output_shape(self, x_shape):
        return (*x_shape[:2], x_shape[1])


class AttentionalMessages(SameShape):
    """What nodes hear of others: sum over j of a_ij W z_j, for x (B, N, D) and z (B, M, E): (B, N, D).

    The weights are a_i = softmax over j of v · relu(U [x_i; z_j]), section 3.3. A node that may hear of none
    hears 0.

    Args:
        hidden_dim: the rows of U.

    >>> objects, relations = np.ones((1, 5, 8)), np.ones((1, 3, 6))
    >>> keras_tfm.layers.AttentionalMessages(hidden_dim=4)(objects, relations).shape
    TensorShape([1, 5, 8])
    """

    def __init__(self, hidden_dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_sizes(hidden_dim=hidden_dim)
        self.hidden_dim = hidden_dim
        self.query = Dense(hidden_dim)
        self.key = Dense(hidden_dim, use_bias=False)  # U of both, in two parts; the query has its bias
        self.score = Dense(1, use_bias=False)

    def build(self, x_shape, context_shape):
        self.value = Dense(x_shape[-1], use_bias=False, name="value")  # W
        self.query.build(x_shape)
        self.key.build(context_shape)
        self.score.build((*x_shape[:2], context_shape[1], self.hidden_dim))
        self.value.build(context_shape)

    def call(self, x, context, mask=None):
        """(B, N, D), (B, M, E) -> (B, N, D); `mask` (B, N, M) says who hears of whom."""
        hidden = ops.relu(self.query(x)[:, :, None] + self.key(context)[:, None])  # (B, N, M, hidden)
        weights = masked_softmax(self.score(hidden)[..., 0], mask)
        tap(self, weights[:, None])
        return ops.einsum("bnm,bmd->bnd", ops.cast(weights, x.dtype), self.value(context))


class SceneGraphConvolution(WithoutMask):
    """The attentional graph convolution of objects and relations: (B, N, D) and (B, R, E), in and out.

    An object becomes relu(object + messages of other objects + messages of the relations that it is the
    subject of + messages of the relations that it is the object of), a relation relu(relation + W subject +
    W' object): equations 8 and 9. Messages to objects are `AttentionalMessages`; a relation has one subject
    and one object, whose weights are 1.

    Args:
        hidden_dim: the hidden width of the weights of all messages.

    >>> objects, relations = np.ones((1, 5, 8)), np.ones((1, 3, 6))
    >>> pairs = np.array([[[0, 1], [1, 2], [-1, -1]]])  # two relations, and padding
    >>> layer = keras_tfm.layers.SceneGraphConvolution(hidden_dim=4)
    >>> [x.shape for x in layer(objects, relations, pairs)]
    [TensorShape([1, 5, 8]), TensorShape([1, 3, 6])]
    """

    def __init__(self, hidden_dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_sizes(hidden_dim=hidden_dim)
        self.hidden_dim = hidden_dim
        self.of_objects = AttentionalMessages(hidden_dim)
        self.of_relations_as_subject = AttentionalMessages(hidden_dim)
        self.of_relations_as_object = AttentionalMessages(hidden_dim)

    def build(self, objects_shape, relations_shape, pairs_shape):
        self.of_objects.build(objects_shape, objects_shape)
        for layer in (self.of_relations_as_subject, self.of_relations_as_object):
            layer.build(objects_shape, relations_shape)
        self.subject, self.object = (
            Dense(relations_shape[-1], use_bias=False, name=name) for name in ("subject", "object")
        )
        self.subject.build(objects_shape)
        self.object.build(objects_shape)

    def call(self, objects, relations, pairs, mask=None):
        """(The objects (B, N, D), the relations (B, R, E)). `pairs` (B, R, 2) are the rows of each relation's
        subject and object, -1 for padding; `mask` (B, N) hides objects from all others.
        """
        rows = ops.arange(ops.shape(objects)[1])
        is_end = ops.cast(pairs, "int32")[..., None] == ops.cast(rows, "int32")  # (B, R, 2, N)
        shown = others(objects)
        if mask is not None:
            mask = ops.cast(mask, "bool")[:, None]  # (B, 1, N)
            is_end, shown = ops.logical_and(is_end, mask[:, None]), ops.logical_and(shown, mask)
        is_subject, is_object = is_end[:, :, 0], is_end[:, :, 1]  # (B, R, N)
        of_others = self.of_objects(objects, objects, mask=shown)
        of_others += self.of_relations_as_subject(objects, relations, mask=ops.swapaxes(is_subject, 1, 2))
        of_others += self.of_relations_as_object(objects, relations, mask=ops.swapaxes(is_object, 1, 2))
        of_ends = ops.matmul(ops.cast(is_subject, relations.dtype), self.subject(objects))  # (B, R, E)
        of_ends += ops.matmul(ops.cast(is_object, relations.dtype), self.object(objects))
        return ops.relu(objects + of_others), ops.relu(relations + of_ends)

    def compute_output_shape(self, objects_shape, relations_shape, pairs_shape):
        return tuple(objects_shape), tuple(relations_shape)


def others(x: Tensor) -> Tensor:
    """A mask (1, N, N) by which each of the nodes x (B, N, D) sees all but itself."""
    rows = ops.arange(ops.shape(x)[1])
    return (rows[:, None] != rows[None])[None]
