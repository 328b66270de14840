"""The position of a training in its data: saved and restored by the state of each worker's iterator."""

import collections
import functools
import itertools
import pathlib
from collections.abc import Iterator
from typing import Any, Self

import keras
import tensorflow as tf

from keras_tfm.private import keras as private
from keras_tfm.private.tensorflow import local_dataset_of
from keras_tfm.training.folder import Path
from keras_tfm.training.strategy import sum_over_workers


class Position:
    """The position of a running `fit` in its data. It replaces the steps of `epochs`, Keras's own iterator
    over them.

    Every epoch reads from one `iterator` that TensorFlow can save and restore. Under a strategy it reads each
    worker's share of the dataset itself, since distributed iterators cannot be saved.
    """

    def __init__(self, epochs: private.EpochIterator, strategy: tf.distribute.Strategy):
        self._epochs = epochs
        self._first = 0
        self._iterator: Any = None
        if private.reads_distributed(epochs):  # by any strategy but the default one, on one replica too
            several = strategy.num_replicas_in_sync > 1
            read = functools.partial(WorkerDataset, strategy) if several else local_dataset_of
            private.replace_distributed_dataset(epochs, read)
        private.replace_steps(epochs, self._steps)

    def save(self, prefix: Path) -> bool:
        """Write the iterator's state to files that begin with `prefix`; returns False if it cannot be saved.

        Iterators over Python generators, and over random numbers without a seed, cannot be saved.
        """
        if self._iterator is None and not self._epochs.steps_per_epoch:
            return True  # before an epoch there is nothing to save
        try:
            tf.train.Checkpoint(iterator=self._saveable()).write(str(prefix))
        except (tf.errors.FailedPreconditionError, tf.errors.UnimplementedError):
            for file in pathlib.Path(prefix).parent.glob(f"{pathlib.Path(prefix).name}.*"):
                file.unlink()
            return False
        except tf.errors.OpError as error:
            raise OSError(error.message) from None
        return True

    def begin(self, epoch: int = 0, step: int = 0, prefix: Path | None = None) -> None:
        """Continue after `step` steps of `epoch` from the files of `save`; without them, from the epoch's
        start.
        """
        epochs = self._epochs
        restores = prefix is not None and (step or epochs.steps_per_epoch)
        if not epochs.steps_per_epoch:
            # Each epoch has its own iterator. A shuffled dataset draws a new order for each iterator made
            # from it, restoring makes one more, and the state at the end of an epoch does not say how many
            # there were: however an epoch begins, its iterator must be number `epoch` + 2.
            for _ in range(epoch if restores else epoch + 1):
                private.new_iterator(epochs)
            seen = step
        else:
            seen = epoch * epochs.steps_per_epoch + step
            if prefix is None:
                collections.deque(itertools.islice(self._opened(), seen), maxlen=0)
        if restores:
            tf.train.Checkpoint(iterator=self._saveable()).read(str(prefix)).assert_consumed()
        self._first = step
        num_batches = private.num_batches_of(epochs)
        private.set_steps_seen(epochs, seen % num_batches if num_batches else seen)

    def _opened(self) -> tf.data.Iterator:
        if self._iterator is None:
            self._iterator = private.new_iterator(self._epochs)
        return self._iterator

    def _saveable(self) -> tf.data.Iterator:
        iterator = self._opened()
        return iterator.local if isinstance(iterator, WorkerIterator) else iterator

    def _begin_anew(self) -> None:
        self._iterator = None
        private.set_steps_seen(self._epochs, 0)

    def _steps(self) -> Iterator[tuple[int, int, tf.data.Iterator]]:
        """Replaces Keras's `EpochIterator._enumerate_iterator`, and can start at any step."""
        epochs = self._epochs
        size, num_batches = epochs.steps_per_execution, private.num_batches_of(epochs)
        first, self._first = self._first, 0
        if not epochs.steps_per_epoch and not first:
            self._begin_anew()
        epochs.data_adapter.on_epoch_begin()
        limit = epochs.steps_per_epoch or num_batches
        for step in range(first, limit, size) if limit else itertools.count(first, size):
            if num_batches and private.steps_seen(epochs) >= num_batches:
                if epochs.steps_per_epoch:
                    private.warn_of_the_end(epochs)
                break
            iterator = self._opened()
            private.set_steps_seen(epochs, private.steps_seen(epochs) + size)
            yield step, step + size - 1, iterator
        if epochs.steps_per_epoch and num_batches and private.steps_seen(epochs) >= num_batches:
            self._begin_anew()
        epochs.data_adapter.on_epoch_end()


class WorkerDataset:
    """This worker's share of a distributed dataset: batches for its replicas, equal to the original ones."""

    def __init__(self, strategy: tf.distribute.Strategy, distributed: tf.distribute.DistributedDataset):
        self._local = local_dataset_of(distributed)
        self._strategy = strategy

    def __iter__(self) -> "WorkerIterator":
        return WorkerIterator(self._strategy, self._local)


class WorkerIterator:
    """Takes one batch per replica of this worker from `local`, a plain iterator.

    As long as any worker has batches, a replica without one gets an empty batch.
    """

    def __init__(self, strategy: tf.distribute.Strategy, dataset: tf.data.Dataset):
        self._strategy = strategy
        self._num_local = len(strategy.extended.worker_devices)
        self._is_endless = dataset.cardinality() == tf.data.INFINITE_CARDINALITY
        self.local = iter(dataset)
        self.element_spec = dataset.element_spec

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        batches = list(itertools.islice(self.local, self._num_local))
        if not self._is_endless and not sum_over_workers(self._strategy, len(batches)):
            raise StopIteration
        batches += [self._empty() for _ in range(self._num_local - len(batches))]
        replicas = iter(batches)
        return self._strategy.experimental_distribute_values_from_function(lambda _: next(replicas))

    def _empty(self) -> Any:
        return keras.tree.map_structure(
            lambda spec: tf.zeros([0, *(size or 0 for size in spec.shape[1:])], spec.dtype), self.element_spec
        )
