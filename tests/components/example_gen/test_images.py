"""Tests that folders of images are read as they are, and what is refused."""

import io
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from ingestion import ingest, ingest_by, make_examples, resolved, rows
from PIL import Image
from tfx.proto import example_gen_pb2

from tfx_distribute.components import ImageExampleGen
from tfx_distribute.components.beam import parts as beam_parts
from tfx_distribute.components.example_gen import images, records
from tfx_distribute.components.example_gen.names import LEFT_OUT
from tfx_distribute.pipelines.spec.pipeline import Data
from tfx_distribute.pipelines.targets import tfx_pipeline
from tfx_distribute.trainer_module.errors import DataError


def encode(kind: str, mode: str = "RGB", value: int = 0, **options: object) -> bytes:
    """Returns an image of random pixels."""
    pixels = np.random.default_rng(value).integers(0, 256, (9, 7, 4), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels, "RGBA").convert(mode).save(stream, kind, **options)
    return stream.getvalue()


def write(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Writes files into a folder, and returns it."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


@pytest.fixture
def folder(tmp_path) -> Path:
    """Returns a folder with 20 cats and 20 dogs."""
    files = {
        f"{label}/{number}.png": encode("PNG", value=number + 100 * (label == "dog"))
        for label in ("cat", "dog")
        for number in range(20)
    }
    return write(tmp_path / "data", files)


ENCODINGS = [
    *(("JPEG", suffix, mode, {}) for suffix in ("jpg", "jpeg", "JPG", "Jpeg") for mode in ("RGB", "L")),
    ("JPEG", "jpg", "RGB", {"progressive": True}),
    ("JPEG", "jpg", "CMYK", {}),
    *(("PNG", "png", mode, {}) for mode in ("RGB", "RGBA", "L", "LA", "P", "1")),
    ("PNG", "PNG", "RGBA", {}),
    ("PNG", "jpg", "RGB", {}),  # decode_image goes by the content
    ("GIF", "gif", "P", {}),
    ("GIF", "GIF", "L", {"save_all": True, "append_images": [Image.new("L", (7, 9))]}),
    *(("BMP", "bmp", mode, {}) for mode in ("RGB", "L")),
]


@pytest.mark.parametrize(("kind", "suffix", "mode", "options"), ENCODINGS)
def test_each_kind_of_image_arrives_as_it_is(tmp_path, kind, suffix, mode, options):
    content = encode(kind, mode, **options)
    for path in (tmp_path / "größe 猫" / f"ü ☃.{suffix}", tmp_path / "dog" / f"1.{suffix}"):
        path.parent.mkdir()
        path.write_bytes(content)
    found = [row for batch in images.read(str(tmp_path), 0, 1) for row in batch.to_pylist()]
    expected = [{"label": [label.encode()], "image": [content]} for label in ("dog", "größe 猫")]
    assert found == expected
    assert tf.io.decode_image(content, expand_animations=False).shape[:2] == (9, 7)


def test_images_have_the_names_of_their_folders_as_labels(folder, tmp_path):
    write(folder, {".DS_Store": b"", "_cache/1.txt": b"", "cat/_SUCCESS": b"", "cat/.thumbs/1.txt": b""})
    (folder / "empty").mkdir()
    splits = ingest(Data(images=str(folder)), tmp_path / "out")
    found = {(row["label"][0].decode(), row["image"][0]) for split in splits.values() for row in split}
    assert found == {(file.parent.name, file.read_bytes()) for file in folder.glob("[cd]*/*.png")}
    assert len(found) == 40
    assert 5 <= len(splits["eval"]) <= 20


def test_neither_names_nor_processes_nor_batches_change_the_splits(folder, tmp_path, monkeypatch):
    def read(source: Path, out: str) -> dict[str, list[str]]:
        splits = ingest(Data(images=str(source)), tmp_path / out)
        return {name: sorted(map(str, split)) for name, split in splits.items()}

    alone = read(folder, "alone")
    monkeypatch.setattr(beam_parts, "num_processes", lambda arguments: 3)
    monkeypatch.setattr(records, "_BATCH_BYTES", 1000)
    assert read(folder, "together") == alone
    for number, file in enumerate(sorted(folder.glob("*/*.png"), reverse=True)):
        file.rename(file.with_name(f"renamed {number}.png"))
    assert read(folder, "renamed") == alone


def test_columns_of_a_table(folder, tmp_path):
    files = sorted(str(file.relative_to(folder)) for file in folder.glob("*/*.png"))
    lines = [f"{number % 3},{file},{number / 2},{'' if number % 4 else 'a text'}" for number, file in enumerate(files)]
    write(folder, {"metadata.csv": "\n".join(["label,file_name,weight,text", *lines]).encode()})
    expected = [
        {
            "image": [(folder / file).read_bytes()],
            "label": [number % 3],
            "weight": [number / 2],
            "text": None if number % 4 else [b"a text"],
        }
        for number, file in enumerate(files)
    ]
    assert sorted(map(str, rows(Data(images=str(folder)), tmp_path / "out"))) == sorted(
        str(dict(sorted(row.items()))) for row in expected
    )
    component = tfx_pipeline.make_example_gen(Data(images=str(folder), require=["text"], splits={"train": 1}))
    examples = make_examples(component, tmp_path / "required")
    assert examples.get_string_custom_property(LEFT_OUT) == "30 of 40 examples without a value of text (30)"


def test_a_table_may_have_no_other_columns(tmp_path):
    write(tmp_path / "data", {"a.png": encode("PNG"), "metadata.csv": b"file_name\na.png\na.png\n"})
    found = rows(Data(images=str(tmp_path / "data"), splits={"train": 1}), tmp_path / "out")
    assert found == [{"image": [encode("PNG")]}] * 2


def with_thumbnail(image: bytes) -> bytes:
    """Returns a JPEG file with another one in its header, as cameras write them."""
    return image[:2] + b"\xff\xe1" + (len(image) + 2).to_bytes(2, "big") + image + image[2:]


def table(text: bytes) -> dict[str, bytes]:
    return {"metadata.csv": text + b"\n"}


JPEG, PNG = encode("JPEG"), encode("PNG")
TWO = {"cat/1.png": PNG, "dog/1.png": PNG}
CUT = "is not a JPEG, PNG, GIF or BMP file, or is cut off; replace or remove it"
ADVICE = "write a folder that holds a folder for each class, or a metadata.csv with a column 'file_name'"


def test_a_thumbnail_is_not_the_image(tmp_path):
    assert tf.io.decode_image(with_thumbnail(JPEG)).shape == (9, 7, 3)
    write(tmp_path, {"cat/1.jpg": with_thumbnail(JPEG), "dog/1.jpg": JPEG})
    assert sum(batch.num_rows for batch in images.read(str(tmp_path), 0, 1)) == 2


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({**TWO, "cat/2.jpg": b"text, not an image"}, f"data/cat/2.jpg {CUT}"),
        ({**TWO, "cat/2.jpg": b""}, f"data/cat/2.jpg {CUT}"),
        ({**TWO, "cat/2.jpg": JPEG[:-40]}, f"data/cat/2.jpg {CUT}"),
        ({**TWO, "cat/2.jpg": with_thumbnail(JPEG)[:-40]}, f"data/cat/2.jpg {CUT}"),
        ({**TWO, "cat/2.png": PNG[:-5]}, f"data/cat/2.png {CUT}"),
        ({**TWO, "cat/2.webp": PNG}, "data/cat/2.webp is not an image: its name does not end in one of .bmp, .gif, .jpeg"),
        ({**TWO, "1.png": PNG}, f"data/1.png is not directly in the folder of a class; {ADVICE}"),
        ({**TWO, **table(b"name,label\n1.png,cat")}, "csv has no column 'file_name', the path of an image; it has name"),
        ({**TWO, **table(b"file_name,image\ncat/1.png,1")}, "csv: column 'image' has the name that the images get"),
        ({**TWO, **table(b"file_name,x\n9.png,1")}, "csv, line 2: file_name is '9.png', and there is no such"),
        ({**TWO, **table(b"file_name,x\ncat/1.png,1")}, "csv has no row for dog/1.png; write one, or remove the image"),
        ({"cat/1.png": PNG, "cat/2.png": PNG}, f"data has only one class, cat; {ADVICE}"),
        ({"_hidden.png": PNG}, f"data holds no images; {ADVICE}"),
        (table(b"file_name"), "data/metadata.csv has no rows; write one for each image"),
        ({}, f"data is not a folder, or is not there; {ADVICE}"),
    ],
)
def test_what_is_refused(tmp_path, files, message):
    write(tmp_path / "data", files)
    with pytest.raises(DataError) as refused:
        rows(Data(images=str(tmp_path / "data")), tmp_path / "out")
    assert message in str(refused.value)
    assert str(tmp_path / "data") in str(refused.value)


def test_the_cache_key_has_content_and_labels(folder):
    data = Data(images=str(folder))
    before = resolved(data)
    assert resolved(data) == before
    (folder / ".DS_Store").touch()
    assert resolved(data) == before
    keys = {str(before)}
    one, other = folder / "cat" / "1.png", folder / "dog" / "1.png"
    contents = one.read_bytes(), other.read_bytes()
    one.write_bytes(contents[1])
    other.write_bytes(contents[0])
    keys.add(str(resolved(data)))
    (folder / "dog").rename(folder / "wolf")
    keys.add(str(resolved(data)))
    shutil.copy(one, folder / "cat" / "new.png")
    keys.add(str(resolved(data)))
    assert len(keys) == 4


def test_folders_of_splits_in_python(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "all" / "train")
    shutil.copytree(folder, tmp_path / "all" / "eval")
    shutil.rmtree(tmp_path / "all" / "eval" / "cat")
    write(tmp_path / "all" / "eval", {"bird/1.png": PNG})
    splits = [example_gen_pb2.Input.Split(name=name, pattern=name) for name in ("train", "eval")]
    component = ImageExampleGen(str(tmp_path / "all"), input_config=example_gen_pb2.Input(splits=splits))
    found = ingest_by(component, tmp_path / "out")
    labels = {split: {row["label"][0] for row in examples} for split, examples in found.items()}
    assert labels == {"train": {b"cat", b"dog"}, "eval": {b"bird", b"dog"}}
