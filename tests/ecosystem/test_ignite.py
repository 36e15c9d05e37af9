"""Ignite: a supervised trainer and evaluator, and loaders that ``auto_dataloader`` makes."""

from typing import Any

import pytest
import torch

from tests.support import helpers
from tests.support.ecosystem import proven
from tests.support.loaders import TRAIN

engine = helpers.optional("ignite.engine")
distributed = helpers.optional("ignite.distributed")
metrics = helpers.optional("ignite.metrics")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ignite.*")


@pytest.mark.parametrize("workers", [0, 2])
def test_a_trainer_and_an_evaluator(paths: list[str], workers: int) -> None:
    def run() -> Any:
        dataset = helpers.Files(paths, TRAIN)
        loader = distributed.auto_dataloader(dataset, batch_size=4, shuffle=True, num_workers=workers)
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 12))
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        trainer = engine.create_supervised_trainer(model, optimizer, torch.nn.functional.cross_entropy)
        evaluator = engine.create_supervised_evaluator(model, {"accuracy": metrics.Accuracy()})
        seen: list[Any] = []

        @trainer.on(engine.Events.ITERATION_COMPLETED)
        def keep(running: Any) -> None:
            images, labels = running.state.batch
            seen.append([images.clone(), labels, running.state.output])

        trainer.run(loader, max_epochs=2)
        evaluator.run(loader)
        parameters = [parameter.detach() for parameter in model.parameters()]
        return seen, parameters, evaluator.state.metrics["accuracy"]

    seen, _, _ = proven(run, images=36)
    assert len(seen) == 6
