"""Data sets on the disk, in Parquet, of Minari and of LeRobot: into a table, and out of one. Nothing is downloaded.

Each format needs an extra of its own: `reverie[parquet]`, `reverie[minari]`, `reverie[lerobot]`.
"""

from reverie.integrations.datasets.exporting import export_table
from reverie.integrations.datasets.formats import open_dataset
from reverie.integrations.datasets.importing import import_dataset
from reverie.integrations.datasets.reports import TransferReport
from reverie.integrations.datasets.sources import DatasetError, DatasetSource, EpisodeRow, RowBlock

__all__ = [
    "DatasetError",
    "DatasetSource",
    "EpisodeRow",
    "RowBlock",
    "TransferReport",
    "export_table",
    "import_dataset",
    "open_dataset",
]
