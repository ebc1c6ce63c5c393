"""What Azure's own Python client does to blobs, against the server at $ENDPOINT. Run by TestAzureStorageBlob."""
import hashlib
import os
import unittest

from azure.core import MatchConditions
from azure.core.exceptions import (ClientAuthenticationError, HttpResponseError, ResourceExistsError, ResourceModifiedError,
                                   ResourceNotFoundError)
from azure.storage.blob import BlobBlock, BlobServiceClient, ContainerClient, ContentSettings

ENDPOINT = os.environ["ENDPOINT"]  # http://127.0.0.1:PORT/blob
SAS = os.environ["SAS"]            # everything in container "c"
NAMES = ["plain.txt", "a b.txt", "a+b.txt", "100%.txt", "a%20b.txt", "#1.txt", "q?x=1&y=2.txt", "grün/日本語/🚂.txt", "semi;colon,comma.txt",
         "tab\there.txt", "quote'\"<&>.txt", "trail ", "~tilde/!$()*.txt", "x.attrs"]


def client(**options):
    # small pieces, so that a few megabytes are many blocks
    return ContainerClient(ENDPOINT, "c", credential=SAS, retry_total=0, **options)


def noise(size, seed=b"x"):
    out, block = bytearray(), hashlib.sha256(seed).digest()
    while len(out) < size:
        block = hashlib.sha256(block).digest()
        out += block
    return bytes(out[:size])


class Names(unittest.TestCase):
    def test_every_name_comes_back(self):
        c = client()
        for i, name in enumerate(NAMES):
            c.upload_blob("names/" + name, f"content {i}".encode(), metadata={"upload_status": "completed", "name": "d1"})
        listed = {b.name: b for b in c.list_blobs(name_starts_with="names/", include=["metadata"])}
        self.assertEqual(sorted(listed), sorted("names/" + n for n in NAMES))
        for i, name in enumerate(NAMES):
            self.assertEqual(c.download_blob("names/" + name).readall(), f"content {i}".encode(), name)
            self.assertEqual(listed["names/" + name].metadata, {"upload_status": "completed", "name": "d1"})
            self.assertEqual(listed["names/" + name].size, len(f"content {i}"))
        for name in NAMES:
            c.delete_blob("names/" + name)
        self.assertEqual(list(c.list_blobs(name_starts_with="names/")), [])

    def test_walk(self):
        c = client()
        for name in ["walk/a/1", "walk/a/2", "walk/a-b", "walk/b/c/3", "walk/z"]:
            c.upload_blob(name, b"x", overwrite=True)
        self.assertEqual(sorted(b.name for b in c.walk_blobs("walk/", delimiter="/")), ["walk/a-b", "walk/a/", "walk/b/", "walk/z"])
        self.assertEqual([b.name for b in c.walk_blobs("walk/b/", delimiter="/")], ["walk/b/c/"])
        self.assertEqual(list(c.walk_blobs("walk/none/", delimiter="/")), [])
        self.assertEqual(list(c.list_blobs(name_starts_with="/odd//prefix")), [])

    def test_list_of_many(self):
        c = client()  # the server was given 5,200 blobs many/00000 …
        self.assertEqual([b.name for b in c.list_blobs(name_starts_with="many/")], [f"many/{i:05}" for i in range(5200)])
        pages = c.list_blobs(name_starts_with="many/", results_per_page=700).by_page()
        self.assertEqual([len(list(p)) for p in pages], [700] * 7 + [300])


class Blobs(unittest.TestCase):
    def test_properties(self):
        b = client().get_blob_client("props/x.csv")
        with self.assertRaises(ResourceNotFoundError) as e:
            b.get_blob_properties()
        self.assertEqual(e.exception.error_code, "BlobNotFound")
        self.assertFalse(b.exists())
        b.upload_blob(b"a,b\n", content_settings=ContentSettings(content_type="text/csv"), metadata={"k": "v"})
        p = b.get_blob_properties()
        self.assertEqual((p.size, p.content_settings.content_type, p.metadata, p.blob_type), (4, "text/csv", {"k": "v"}, "BlockBlob"))
        b.set_blob_metadata({"upload_status": "completed"})
        q = b.get_blob_properties()
        self.assertEqual((q.metadata, q.content_settings.content_type), ({"upload_status": "completed"}, "text/csv"))
        self.assertNotEqual(p.etag, q.etag)
        with self.assertRaises(ResourceModifiedError):
            b.download_blob(etag=p.etag, match_condition=MatchConditions.IfNotModified).readall()
        self.assertEqual(b.download_blob(etag=q.etag, match_condition=MatchConditions.IfNotModified).readall(), b"a,b\n")
        b.delete_blob()
        self.assertFalse(b.exists())

    def test_if_none_match(self):
        b = client().get_blob_client("once")
        b.upload_blob(b"first")
        with self.assertRaises(ResourceExistsError) as e:
            b.upload_blob(b"second")
        self.assertEqual((e.exception.error_code, e.exception.status_code), ("BlobAlreadyExists", 409))
        with self.assertRaises(ResourceExistsError):
            b.upload_blob(noise(20 << 20))
        self.assertEqual(b.download_blob().readall(), b"first")
        b.upload_blob(b"third", overwrite=True)
        self.assertEqual(b.download_blob().readall(), b"third")

    def test_empty(self):
        b = client().get_blob_client("empty")
        b.upload_blob(b"", overwrite=True)
        self.assertEqual(b.download_blob().readall(), b"")
        self.assertEqual(b.get_blob_properties().size, 0)

    def test_large_in_parallel_blocks(self):
        data = noise(21_000_123)
        c = client(max_single_put_size=1 << 20, max_block_size=4 << 20, max_single_get_size=3 << 20, max_chunk_get_size=1 << 20)
        b = c.get_blob_client("large/model.bin")
        b.upload_blob(data, max_concurrency=4, overwrite=True, metadata={"k": "v"},
                      content_settings=ContentSettings(content_type="application/x-model"))
        self.assertEqual(b.download_blob(max_concurrency=4).readall(), data)
        p = b.get_blob_properties()
        self.assertEqual((p.size, p.metadata, p.content_settings.content_type), (len(data), {"k": "v"}, "application/x-model"))
        self.assertEqual(b.download_blob(offset=5_000_000, length=100).readall(), data[5_000_000:5_000_100])
        self.assertEqual(b.download_blob(offset=len(data) - 10, length=100).readall(), data[-10:])
        with self.assertRaises(HttpResponseError) as e:
            b.download_blob(offset=len(data), length=1).readall()
        self.assertEqual(e.exception.status_code, 416)

    def test_content_is_validated(self):
        c = client(max_single_put_size=1 << 20, max_block_size=1 << 20, max_single_get_size=1 << 20, max_chunk_get_size=1 << 20)
        data = noise(3_500_000, b"y")
        c.upload_blob("validated", data, validate_content=True, overwrite=True)
        self.assertEqual(c.download_blob("validated", validate_content=True).readall(), data)

    def test_streams_of_unknown_length(self):
        data = noise(5_000_000, b"z")
        c = client(max_single_put_size=1 << 20, max_block_size=1 << 20)
        c.upload_blob("stream", (data[i:i + 70_000] for i in range(0, len(data), 70_000)), overwrite=True)
        self.assertEqual(c.download_blob("stream").readall(), data)

    def test_blocks_by_hand(self):
        b = client().get_blob_client("by/hand")
        b.stage_block("1", b"one ")
        b.stage_block("2", b"two ")
        b.stage_block("2", b"TWO ")
        with self.assertRaises(HttpResponseError) as e:
            b.commit_block_list([BlobBlock("1"), BlobBlock("9")])
        self.assertEqual(e.exception.error_code, "InvalidBlockList")
        self.assertFalse(b.exists())
        b.commit_block_list([BlobBlock("2"), BlobBlock("1"), BlobBlock("2")])
        self.assertEqual(b.download_blob().readall(), b"TWO one TWO ")

    def test_what_is_not_built_is_said(self):
        b = client().get_blob_client("unbuilt")
        for do in (lambda: b.create_append_blob(), lambda: b.create_page_blob(512), lambda: b.acquire_lease(), lambda: b.create_snapshot()):
            with self.assertRaises(HttpResponseError) as e:
                do()
            self.assertEqual((e.exception.status_code, e.exception.error_code), (400, "UnsupportedOperation"))
            self.assertIn("does not have", str(e.exception))


class Auth(unittest.TestCase):
    def test_a_signature_for_reading(self):
        c = ContainerClient(ENDPOINT, "c", credential=os.environ["READ_SAS"], retry_total=0)
        client().upload_blob("auth/x", b"x", overwrite=True)
        self.assertEqual(c.download_blob("auth/x").readall(), b"x")
        with self.assertRaises(HttpResponseError) as e:
            c.upload_blob("auth/x", b"y", overwrite=True)
        self.assertEqual((e.exception.status_code, e.exception.error_code), (403, "AuthorizationPermissionMismatch"))

    def test_a_signature_out_of_date(self):
        c = ContainerClient(ENDPOINT, "c", credential=os.environ["OLD_SAS"], retry_total=0)
        with self.assertRaises(ClientAuthenticationError) as e:
            c.download_blob("auth/x")
        self.assertIn("expired", str(e.exception))

    def test_the_url_of_a_container(self):
        # as azure-ai-ml does with the sasUri that it is given for a code snapshot
        c = ContainerClient.from_container_url(f"{ENDPOINT}/snap-1?{os.environ['SNAP_SAS']}")
        self.assertEqual(c.container_name, "snap-1")
        c.upload_blob("src/train.py", b"print(1)")
        c.get_blob_client("src/train.py").set_blob_metadata({"upload_status": "completed"})
        self.assertEqual([(b.name, b.metadata) for b in c.list_blobs(include=["metadata"])],
                         [("src/train.py", {"upload_status": "completed"})])
        self.assertTrue(c.exists())

    def test_an_account_key(self):
        s = BlobServiceClient(os.environ["ACCOUNT"], credential=os.environ["ACCOUNT_KEY"], retry_total=0)
        c = s.get_container_client("c")
        for name in NAMES:
            c.upload_blob("key/" + name, noise(100), overwrite=True, metadata={"a_b": "1", "ab": "2", "a1": "3"},
                          content_settings=ContentSettings(content_type="text/plain"))
            self.assertEqual(c.download_blob("key/" + name).readall(), noise(100))
        self.assertEqual(sorted(b.name for b in c.list_blobs(name_starts_with="key/")), sorted("key/" + n for n in NAMES))
        wrong = BlobServiceClient(os.environ["ACCOUNT"], credential="d3Jvbmc=", retry_total=0)
        with self.assertRaises(ClientAuthenticationError):
            wrong.get_container_client("c").download_blob("key/plain.txt")


if __name__ == "__main__":
    unittest.main(verbosity=1)
