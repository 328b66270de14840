"""A series of numbers and how it goes on: AR(k), a dense and a recurrent model, beside the naive forecast.

    python examples/series.py

Takes 1 minute on 2 cores. Expected: the wave on a line goes on for 100 values with a mean absolute error
below 1 % of the naive forecast's, which repeats the last value, by the linear model, whose equation is exact,
and below 5 % by the others.
"""

import numpy as np

from keras_tfm.tasks import Forecaster


def main(folder="saved_models/series"):
    steps = np.arange(700)
    series = 3 * np.sin(2 * np.pi * steps / 25) + 0.02 * steps + 5
    known, future = series[:600], series[600:]
    naive = np.abs(known[-1] - future).mean()
    print(f"naive: mean absolute error {naive:.3f}")
    for kind, bound in (("linear", 0.01), ("dense", 0.05), ("recurrent", 0.05)):
        forecaster = Forecaster.from_series(known, kind, window=25, horizon=len(future))
        forecaster.fit(known, epochs=60, patience=None)
        error = np.abs(forecaster.forecast(known) - future).mean()
        one_step = forecaster.evaluate(series[575:])
        print(f"{kind}: {error:.4f} over {len(future)} values, {one_step['mae']:.4f} one step ahead")
        assert error < bound * naive
    forecaster.export(folder, overwrite=True)


if __name__ == "__main__":
    main()
