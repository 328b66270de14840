"""Private names of Keras 3.15."""

import contextlib

import keras
import tensorflow as tf
from keras.src.backend import compute_output_spec, get_keras_mask, rnn, set_keras_mask
from keras.src.backend.common.global_state import get_global_attribute, set_global_attribute
from keras.src.backend.tensorflow.trainer import TFEpochIterator as EpochIterator
from keras.src.export.saved_model_export_archive import SavedModelExportArchive
from keras.src.losses.loss import apply_mask, squeeze_or_expand_to_same_rank, unscale_loss_for_distribution
from keras.src.models.functional import Functional
from keras.src.models.model import functional_init_arguments
from keras.src.saving.serialization_lib import ObjectSharingScope
from keras.src.trainers.compile_utils import CompileLoss
from keras.src.utils.naming import to_snake_case

from keras_tfm.private.tensorflow import tracing_to_save

__all__ = [  # imported by other files without a wrapper
    "CompileLoss",
    "Functional",
    "apply_mask",
    "functional_init_arguments",
    "get_keras_mask",
    "rnn",
    "set_keras_mask",
    "squeeze_or_expand_to_same_rank",
    "to_snake_case",
    "unscale_loss_for_distribution",
]

# Keras lists variables without values here, and initialises them at the end of its next scope.
UNINITIALIZED = "uninitialized_variables"

# The private attributes that are used or overridden, by class.
ATTRIBUTES: dict = {
    keras.layers.Layer: (
        "_clear_losses",
        "_flatten_layers",
        "_inbound_nodes",
        "_layers",
        "_remat_mode",
        "_seed_generators",
        "_trainable",
        "_untrack_variable",
    ),
    keras.Variable: ("_deferred_initialize", "_initialize"),
    keras.layers.BatchNormalization: ("_moments", "_reduction_axes"),
    keras.layers.Dense: ("_kernel",),
    keras.layers.EinsumDense: ("_kernel",),
    keras.Model: (
        "_call_has_training_arg",
        "_compile_loss",
        "_compile_metrics",
        "_compute_loss",
        "_get_metrics_result_or_logs",
        "_initial_epoch",
        "_loss_tracker",
        "_make_function",
        "_maybe_symbolic_build",
        "_post_build",
        "_symbolic_build",
    ),
    Functional: ("_inputs_struct", "_outputs_struct"),
    CompileLoss: ("_flat_losses", "_user_loss", "_user_loss_weights"),
    keras.optimizers.Optimizer: (
        "_accumulated_gradients",
        "_all_reduce_sum_gradients",
        "_apply_weight_decay",
        "_backend_apply_gradients",
        "_backend_increment_gradient_accumulators",
        "_backend_update_step",
        "_clip_gradients",
        "_get_variable_index",
        "_iterations",
        "_model_variables_moving_average",
        "_trainable_variables",
        "_update_model_variables_moving_average",
    ),
    keras.optimizers.Adam: ("_momentums", "_velocities"),
    EpochIterator: (
        "_distributed_dataset",
        "_enumerate_iterator",
        "_get_iterator",
        "_interrupted_warning",
        "_num_batches",
        "_steps_seen",
    ),
    SavedModelExportArchive: ("_tf_trackable",),
}

# Methods that ours replace or follow, with digests of the syntax trees that ours were written for.
READ: dict = {
    # precision.py
    ObjectSharingScope.__enter__: "50f284a0ecfd7596",
    # layers/base.py
    keras.layers.Layer.rematerialized_call: "2041dbcd5212fc52",
    # layers/convolution.py
    keras.layers.BatchNormalization._moments: "57bcee05bce8a713",
    # layers/dense.py
    keras.layers.Layer.__delattr__: "560ebc7709f4df75",
    keras.layers.Dense.call: "f249c1c483ab4ee4",
    keras.layers.Dense.quantize: "97c2d2ca568f326a",
    # training/model.py
    keras.Model.__new__: "a6656a9287404b0f",
    # training/exact.py
    keras.Model.compile_from_config: "fd27c5c8a359d9be",
    keras.Model.compute_loss: "027e09e77280d87c",
    keras.Model.train_step: "5e61593806fc57ea",
    keras.Model.test_step: "f100ddb49fafcd9b",
    keras.Model._get_metrics_result_or_logs: "2a9f16f4fb6ce8cc",
    keras.Model._make_function: "7748c2074eef55e5",
    keras.Model._maybe_symbolic_build: "e6b142865da81cff",
    # private/keras.py
    keras.Model._symbolic_build: "b450671afc0c70de",
    CompileLoss.build: "a0e3bc3522b04cf3",
    keras.losses.Loss.__call__: "0266f05b7f18a78c",
    keras.optimizers.Optimizer._backend_apply_gradients: "cfc37732bcbed4d5",
    # training/optimizers.py
    keras.optimizers.Optimizer._update_model_variables_moving_average: "1c92a8d9f5083378",
    # export/saved_model.py
    SavedModelExportArchive.write_out: "2a02faa9d780ec02",
    # training/position.py
    EpochIterator._enumerate_iterator: "7c534cb2253670d7",
}


# Layers ----------------------------------------------------------------------------------------------


def layers_in(layer, include_self=True):
    """`layer`, a model or a layer, and all layers inside it."""
    return list(layer._flatten_layers(include_self=include_self))


def inputs_of_calls(layer):
    """The tensors on which `layer` is called in functional models."""
    return [tensor for node in layer._inbound_nodes for tensor in node.input_tensors]


def source_of(tensor):
    """The layer or operation that made a tensor of a functional model, and the tensors that it was called
    on.
    """
    operation, node_index, _ = tensor._keras_history
    return operation, operation._inbound_nodes[node_index].input_tensors


@contextlib.contextmanager
def shapes_alone():
    """Within this context, new variables have shapes but no values, so a model's weights can be counted
    cheaply.
    """
    before = list(get_global_attribute(UNINITIALIZED) or [])
    try:
        with keras.StatelessScope(initialize_variables=False):
            yield
    finally:
        set_global_attribute(UNINITIALIZED, before)


class _Checked(list):
    """Variables of which each was passed to `check` before; `error` is what it raised."""

    def __init__(self, check):
        super().__init__()
        self.check, self.error = check, None

    def append(self, variable):
        try:
            self.check(variable)
        except ValueError as error:
            self.error = error
            raise
        super().append(variable)


@contextlib.contextmanager
def checking_variables(check):
    """Within this context, `check(variable)` is called for each new variable, a ValueError of which ends the
    context; the variables have shapes and no values. Yields the list of them: `set_value` gives one its
    value, `initialize` what is left.
    """
    made = _Checked(check)
    try:
        with shapes_alone():
            set_global_attribute(UNINITIALIZED, made)
            yield made
    except Exception as error:  # Keras words errors in a layer's `call` anew
        raise (made.error or error) from None


def initialize(variables):
    """Give the `variables` that have no value yet their initial one."""
    for variable in variables:
        if variable._value is None:
            variable._deferred_initialize()


def change_value(variable, function):
    """Assign `function` of its value to a variable; where it has none yet, the initial one is changed so."""
    if variable._value is not None:
        variable.assign(function(variable.value))
        return
    first = variable._initializer
    variable._initializer = lambda *args, **options: function(first(*args, **options))


def set_value(variable, array):
    """Assign an `array` to a variable; one without a value gets no other before."""
    if variable._value is not None:
        variable.assign(array)
        return
    with tf.init_scope():
        variable._initialize(tf.cast(array, variable.dtype))
    variable._initializer = None


@contextlib.contextmanager
def making():
    """A context for constructors that make sub-layers from configurations, also while Keras loads a file.

    While Keras loads a file it recognises an object that several layers share by its address in memory. An
    object made at the address of one that is gone would be taken for it, and a sub-layer of one layer could
    become a sub-layer of another. Within this context Keras forgets these addresses.
    """
    names = "shared_objects/id_to_obj_map", "shared_objects/id_to_config_map"
    before = [get_global_attribute(name) for name in names]
    for name in names:
        set_global_attribute(name, None)
    try:
        yield
    finally:
        for name, value in zip(names, before, strict=True):
            set_global_attribute(name, value)


def shared_number(layer):
    """{"shared_object_id": a number} by which Keras finds a layer again that several layers of a file share;
    {} where no file is written.
    """
    is_written = get_global_attribute("shared_objects/id_to_config_map") is not None
    return {"shared_object_id": id(layer)} if is_written else {}


def parts_of(layer):
    """The layers that `layer` holds directly, without the layers inside them."""
    return layer._layers


@contextlib.contextmanager
def built_parts_kept(layer):
    """Within this context, `build` of those parts of `layer` that are built does nothing: they belong to
    others too, or were trained before. Keras would add their weights a second time, and refuse.
    """
    builds = [(part, vars(part)["build"]) for part in parts_of(layer) if part.built and "build" in vars(part)]
    try:
        for part, _ in builds:
            vars(part)["build"] = lambda *_, **__: None
        yield
    finally:
        for part, build in builds:
            vars(part)["build"] = build


def set_trainable_alone(layer, trainable):
    """Set `trainable` of a layer, but not of the layers inside it."""
    layer._trainable = trainable


def clear_losses(layer):
    """Forget what `layer` and the layers inside it have added to their losses."""
    layer._clear_losses()


def kernel_of(layer):
    """The kernel of a dense layer as it is stored: without a low-rank update, in 8 bits if quantised."""
    return layer._kernel


def seed_generators_of(layer):
    """The generators from which a layer itself draws seeds, without its inner layers' generators."""
    return getattr(layer, "_seed_generators", [])


def rematerialization_of(layer):
    """What a `keras.RematScope` around the making of `layer` asked for, or None."""
    return layer._remat_mode


def set_rematerialization(layer, mode):
    """Let `layer` recompute as if made in a `keras.RematScope` of this `mode`; None as if made outside."""
    layer._remat_mode = mode


def track_in_export(archive, resources):
    """Let a SavedModel hold trackable `resources`, such as tables, that its functions use."""
    archive._tf_trackable.resources = list(resources)


def write_export(archive, names, folder):
    """Write the endpoints `names` of an `ExportArchive`, after `track_in_export` got its tables.

    Its `write_out` traces each function twice, since TensorFlow forgets what was traced before it began to
    save, and each model inside once more, to look for tables.
    """
    held = archive._tf_trackable
    functions = {name: getattr(held, name) for name in names}
    with tracing_to_save():
        variables = [variable for f in functions.values() for variable in f.get_concrete_function().variables]
    held._all_variables = list({id(variable): variable for variable in variables}.values())
    tf.saved_model.save(held, folder, signatures=functions)


def delete_attribute(layer, name):
    """`del layer.name` without Keras's garbage collection, which takes 0.2 s or more each time."""
    value = getattr(layer, name)
    if isinstance(value, keras.Variable):
        layer._untrack_variable(value)
    super(keras.layers.Layer, layer).__delattr__(name)


@contextlib.contextmanager
def deleting_without_collections():
    """Let every layer delete its variables as `delete_attribute` does: Keras collects garbage at each one."""
    theirs = keras.layers.Layer.__delattr__
    keras.layers.Layer.__delattr__ = delete_attribute
    try:
        yield
    finally:
        keras.layers.Layer.__delattr__ = theirs


# Optimizers ------------------------------------------------------------------------------------------


def averages_of(optimizer):
    """The moving averages of the weights, or None if the optimizer keeps none."""
    return optimizer._model_variables_moving_average if optimizer.use_ema else None


def adam_moments(optimizer, variable):
    """The averages that Adam keeps of the gradients of `variable`, and of their squares."""
    index = optimizer._get_variable_index(variable)
    return optimizer._momentums[index], optimizer._velocities[index]


def take_summed_gradients(optimizer):
    """Let `optimizer` take its gradients as already summed over the replicas."""
    optimizer._all_reduce_sum_gradients = list


def replace_clipping(optimizer, make):
    """Let `optimizer` clip gradients by `make(clip)`, a function made of its own."""
    optimizer._clip_gradients = make(optimizer._clip_gradients)


def replace_update(optimizer, update):
    """Let `optimizer` call `update(gradients, variables)` for a step, which accumulates gradients if need
    be.
    """
    optimizer._backend_apply_gradients = update


def batches_seen(optimizer):
    """How many batches the optimizer has seen. `iterations` counts updates, each of one or several
    batches.
    """
    return optimizer._iterations


def accumulated_gradients(optimizer, variables):
    """The variables that hold the sums of the gradients of `variables`."""
    return [optimizer._accumulated_gradients[index_of(optimizer, variable)] for variable in variables]


def accumulate(optimizer, gradients, sums):
    """Add `gradients` to their `sums`."""
    optimizer._backend_increment_gradient_accumulators(gradients, sums)


def clip_decay_and_update(optimizer, gradients, variables):
    """The update itself: clipping, weight decay, and the rule of the optimizer."""
    gradients = optimizer._clip_gradients(gradients)
    optimizer._apply_weight_decay(variables)
    optimizer._backend_update_step(gradients, variables, optimizer.learning_rate)


def update_averages(optimizer):
    """Update the moving averages of the weights."""
    optimizer._update_model_variables_moving_average(optimizer._trainable_variables)


def index_of(optimizer, variable):
    """The index of `variable` among the variables that the optimizer was built for."""
    return optimizer._get_variable_index(variable)


# Training --------------------------------------------------------------------------------------------


def remade_loss(compile_loss, cls):
    """A model's compiled losses and their weights as an object of another class, not built yet."""
    return cls(
        compile_loss._user_loss, compile_loss._user_loss_weights, output_names=compile_loss.output_names
    )


def build_for(model, epochs):
    """Make all variables of the model, its optimizer and its metrics for the batches of an `EpochIterator`.

    Does nothing if the number of axes of the data is not known, and on several replicas. Keras computes the
    model for this in a graph that it throws away; the outputs of a functional model are known without that.
    """
    specs = epochs._distributed_dataset.element_spec
    if all(
        isinstance(spec, tf.TensorSpec) and spec.shape.rank is not None for spec in tf.nest.flatten(specs)
    ):
        batch = tf.nest.map_structure(lambda x: keras.KerasTensor(x.shape.as_list(), x.dtype.name), specs)
        if type(model).call is Functional.call:
            _build_by_outputs(model, *keras.utils.unpack_x_y_sample_weight(batch))
        else:
            model._symbolic_build(data_batch=batch)


def _build_by_outputs(model, x, y, sample_weight):
    """Make the variables of a functional model's loss, metrics and optimizer."""
    outputs = keras.tree.map_structure(lambda x: keras.KerasTensor(x.shape, x.dtype), model._outputs_struct)
    for part, compute in (
        (model._compile_metrics, model.compute_metrics),
        (model._compile_loss, model._compute_loss),
    ):
        if part is not None and not part.built:
            compute_output_spec(compute, x, y, outputs, sample_weight=sample_weight)
    if model.optimizer is not None and not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    model._post_build()


def begin_at(model, epoch):
    """Let the running `fit` continue with `epoch`; None for its own first epoch."""
    model._initial_epoch = epoch


def replace_steps(epochs, steps):
    """Let an `EpochIterator` take `steps()` for an epoch, which yields (first step, last step, iterator)."""
    epochs._enumerate_iterator = steps


def reads_distributed(epochs):
    """Whether an `EpochIterator` reads a distributed dataset."""
    return isinstance(epochs._distributed_dataset, tf.distribute.DistributedDataset)


def replace_distributed_dataset(epochs, replace):
    """Let an `EpochIterator` read `replace(dataset)` instead of its distributed dataset."""
    epochs._distributed_dataset = replace(epochs._distributed_dataset)


def new_iterator(epochs):
    """A new iterator over the dataset of an `EpochIterator`."""
    return iter(epochs._get_iterator())


def num_batches_of(epochs):
    """How many batches the dataset of an `EpochIterator` has, or None if that is unknown."""
    return epochs._num_batches


def steps_seen(epochs):
    """How many batches of its dataset an `EpochIterator` has taken."""
    return epochs._steps_seen


def set_steps_seen(epochs, count):
    """Let an `EpochIterator` count from `count` on."""
    epochs._steps_seen = count


def warn_of_the_end(epochs):
    """Warn that the data ended before the steps of an epoch."""
    epochs._interrupted_warning()
