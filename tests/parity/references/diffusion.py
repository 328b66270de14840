"""Schedules and steps of diffusion: diffusers' schedulers, and Imagen's in lucidrains/imagen-pytorch."""

import numpy as np
from keras import ops

from keras_tfm.generation import diffusion
from keras_tfm.layers import noise_schedules as schedules

BETAS = {
    "linear": schedules.linear_betas,
    "scaled_linear": schedules.scaled_linear_betas,
    "squaredcos_cap_v2": lambda num_steps, first, last: schedules.cosine_betas(num_steps),
    "sigmoid": schedules.sigmoid_betas,
}
VARIANCES = {"fixed_small": "small", "fixed_large": "large", "learned_range": "learned"}
KINDS = {"epsilon": "noise", "v_prediction": "velocity", "sample": "clean"}


def read_betas(arguments, arrays):
    """The betas of all schedules, and the products of alphas."""
    numbers = [arguments[name] for name in ("num_train_timesteps", "beta_start", "beta_end")]
    betas = {name: make(*numbers) for name, make in BETAS.items()}
    betas["zero_snr"] = schedules.zero_terminal_snr(betas["linear"])
    ours = {f"{name}/betas": value for name, value in betas.items()}
    for name, value in betas.items():
        ours[f"{name}/alphas_cumprod"] = schedules.rates_of_betas(value).signal ** 2
    return [], ours


def read_steps(arguments, arrays):
    """The steps of all variants of DDPM or DDIM, each from the sample that the one before made."""
    inputs = [
        "start",
        "clean",
        "noise",
        "model_outputs",
        "variance_noise",
        "learned_range",
        "noised_timesteps",
    ]
    ours = {}
    for name, variant in arguments["variants"].items():
        run = _variant(arguments | variant, arrays)
        ours |= {f"{name}/{key}": value for key, value in run.items()}
    return inputs, ours


def _variant(options, arrays):
    total, count = options["num_train_timesteps"], options["num_inference_steps"]
    betas = BETAS[options.get("beta_schedule", "linear")]
    rates = schedules.rates_of_betas(
        betas(total, options.get("beta_start", 1e-4), options.get("beta_end", 0.02))
    )
    spacing = options.get("timestep_spacing", "leading")
    times = diffusion.timesteps(total, count, spacing, options.get("steps_offset", 0))
    first = schedules.Rates(1.0, 0.0) if options.get("set_alpha_to_one", True) else _at(rates, 0)
    if "eta" in options:
        sampler = diffusion.DDIM(options["eta"])
    else:
        sampler = diffusion.DDPM(VARIANCES[options.get("variance_type", "fixed_small")])
    kind = KINDS[options.get("prediction_type", "epsilon")]
    x, samples, cleans = arrays["start"], [], []
    for i, time in enumerate(times):
        # They go back by total // count from each time, whatever the spacing.
        now, later = _at(rates, time), time - total // count
        then = _at(rates, later) if later >= 0 else first
        output = arrays["model_outputs"][i]
        clean, noise = (make(kind, output, x, now) for make in (schedules.clean_of, schedules.noise_of))
        clean = diffusion.clip(clean) if options.get("clip_sample", True) else clean
        steps = sampler.coefficients(now, then)
        a, b, c, _, drawn = map(float, steps[:5])
        if steps.bounds and drawn > 0:
            small, large = map(float, np.log(steps.bounds))
            drawn = diffusion.learned_deviation(arrays["learned_range"][i], small, large)
        x = a * x + b * clean + c * noise + drawn * arrays["variance_noise"][i]
        samples.append(x)
        cleans.append(clean)
    pair = arrays["clean"], arrays["noise"], _at(rates, arrays["noised_timesteps"])
    return {
        "timesteps": times,
        "samples": np.stack(samples),
        "predicted_clean": np.stack(cleans),
        "noised": schedules.add_noise(*pair),
        "velocity": schedules.prediction_of("velocity", *pair),
    }


def _at(rates, times):
    return schedules.Rates(rates.signal[times], rates.noise[times])


def read_continuous(arguments, arrays):
    """Imagen's schedules: rates, posteriors, predictions."""
    inputs = ["start", "noise", "times", "next_times"]
    start, noise = arrays["start"], arrays["noise"]
    ours = {}
    for name in ("cosine", "linear"):
        log_snr = getattr(schedules, f"{name}_log_snr")
        # Without a next time they go on by one of their steps.
        default = np.maximum(arrays["times"] - 1 / arguments["timesteps"], 0)
        now, then, by_default = (
            schedules.rates_of_log_snr(log_snr(times))
            for times in (arrays["times"], arrays["next_times"], default)
        )
        noised = schedules.add_noise(start, noise, now)
        steps = diffusion.posterior(*(schedules.Rates(*map(np.asarray, rates)) for rates in (now, then)))
        mean = _means(steps, noised, start)
        default_steps = diffusion.posterior(
            *(schedules.Rates(*map(np.asarray, rates)) for rates in (now, by_default))
        )
        signal, rate = schedules.along(now, start)
        signal_then, rate_then = schedules.along(then, start)
        ours |= {
            f"{name}/log_snr": log_snr(arrays["times"]),
            f"{name}/alpha": now.signal,
            f"{name}/sigma": now.noise,
            f"{name}/noised": noised,
            f"{name}/posterior_mean": mean,
            f"{name}/posterior_variance": steps.bounds[0],
            f"{name}/posterior_log_variance": np.log(np.maximum(steps.bounds[0], 1e-20)),
            f"{name}/posterior_mean_default_next": _means(default_steps, noised, start),
            f"{name}/start_from_noise": schedules.clean_of("noise", noise, noised, now),
            f"{name}/start_from_v": schedules.clean_of("velocity", noise, noised, now),
            # From the next times back; they add rates of noise, not variances: no function of ours does.
            f"{name}/from_to": noised * (signal / signal_then)
            + noise * (rate * signal_then - rate_then * signal) / signal_then,
        }
    return inputs, ours


def _means(steps, x, clean):
    x_share, clean_share = (ops.reshape(share, (-1, 1, 1, 1)) for share in (steps.x, steps.clean))
    return ops.cast(x_share, "float32") * x + ops.cast(clean_share, "float32") * clean
