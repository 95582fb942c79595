// Lists of blobs: flat, hierarchical, paged, and with unusual names.

import assert from "node:assert/strict";
import test from "node:test";

import { collect, inOrder, newContainer, refused, text } from "./clients.mjs";

const TREE = ["a", "a/1", "a/2", "a/b/1", "a/b/2", "b", "c/1", "d//e", "é/1"];

async function newTree(t, names = TREE) {
    const container = await newContainer(t);
    const upload = (name) => container.uploadBlockBlob(name, name, Buffer.byteLength(name));
    await Promise.all(names.map(upload));
    return container;
}

const namesOf = (items) => items.map(({ name }) => name);

async function flat(container, settings) {
    return namesOf(await collect(container.listBlobsFlat(settings)));
}

/** Returns the names of blobs, and those of prefixes in brackets. */
async function walked(container, prefix, maxPageSize) {
    const pages = container.listBlobsByHierarchy("/", { prefix }).byPage({ maxPageSize });
    const names = [];
    for await (const { segment } of pages) {
        const prefixes = segment.blobPrefixes ?? [];
        assert.ok(!maxPageSize || prefixes.length + segment.blobItems.length <= maxPageSize);
        names.push(...namesOf(segment.blobItems), ...namesOf(prefixes).map((name) => `[${name}]`));
    }
    return inOrder(names);
}

// Flat

test("all blobs in order", async (t) => {
    const container = await newTree(t);
    assert.deepEqual(await flat(container), inOrder(TREE));
});

test("blobs with a prefix", async (t) => {
    const container = await newTree(t);
    assert.deepEqual(await flat(container, { prefix: "a/" }), ["a/1", "a/2", "a/b/1", "a/b/2"]);
    assert.deepEqual(await flat(container, { prefix: "é" }), ["é/1"]);
    assert.deepEqual(await flat(container, { prefix: "missing" }), []);
});

test("no blobs", async (t) => {
    const container = await newContainer(t);
    assert.deepEqual(await flat(container), []);
    assert.deepEqual(await walked(container), []);
});

test("a listed blob has the same properties as a single one", async (t) => {
    const blobHTTPHeaders = {
        blobContentType: "text/plain",
        blobContentEncoding: "gzip",
        blobContentLanguage: "fr",
        blobContentDisposition: "inline",
        blobCacheControl: "no-cache",
    };
    const metadata = { Key: "<&>" };
    const container = await newContainer(t);
    const settings = { blobHTTPHeaders, metadata };
    const { blockBlobClient } = await container.uploadBlockBlob("blob", "content", 7, settings);
    const own = await blockBlobClient.getProperties();
    const [shown] = await collect(container.listBlobsFlat({ includeMetadata: true }));
    assert.equal(shown.name, "blob");
    // In the XML, unlike in a header, a name keeps its case.
    assert.deepEqual(shown.metadata, metadata);
    const { properties } = shown;
    assert.equal(properties.etag, own.etag.replaceAll('"', ""));
    for (const name of [
        "lastModified",
        "createdOn",
        "contentLength",
        "contentMD5",
        "contentType",
        "contentEncoding",
        "contentLanguage",
        "contentDisposition",
        "cacheControl",
        "blobType",
        "leaseStatus",
        "leaseState",
    ]) {
        assert.deepEqual(properties[name], own[name], name);
    }
    assert.equal(properties.serverEncrypted, true);
});

test("metadata is listed only on request", async (t) => {
    const container = await newContainer(t);
    await container.uploadBlockBlob("blob", "", 0, { metadata: { a: "b" } });
    const [shown] = await collect(container.listBlobsFlat());
    assert.equal(shown.metadata, undefined);
});

// Pages

for (const maxPageSize of [1, 2, 8, 9, 100]) {
    test(`pages of ${maxPageSize}`, async (t) => {
        const container = await newTree(t);
        const pages = await collect(container.listBlobsFlat().byPage({ maxPageSize }));
        const expected = inOrder(TREE);
        for (const page of pages) {
            assert.equal(page.maxPageSize, maxPageSize);
            assert.deepEqual(namesOf(page.segment.blobItems), expected.splice(0, maxPageSize));
        }
        assert.deepEqual(expected, []);
        assert.ok(!pages.at(-1).continuationToken);
    });
}

test("continuing in another listing", async (t) => {
    const container = await newTree(t);
    const { value: first } = await container.listBlobsFlat().byPage({ maxPageSize: 4 }).next();
    assert.deepEqual(namesOf(first.segment.blobItems), inOrder(TREE).slice(0, 4));
    await container.uploadBlockBlob("a/0", "before the page", 15);
    await container.uploadBlockBlob("b/0", "within the next", 15);
    const { continuationToken } = first;
    const rest = await collect(container.listBlobsFlat().byPage({ continuationToken }));
    assert.deepEqual(
        rest.flatMap((page) => namesOf(page.segment.blobItems)),
        inOrder([...TREE, "b/0"]).slice(4),
    );
});

test("an invalid continuation token", async (t) => {
    const container = await newContainer(t);
    const pages = container.listBlobsFlat().byPage({ continuationToken: "%%%" });
    await refused(pages.next(), 400, "OutOfRangeInput");
});

test("an invalid page size", async (t) => {
    const container = await newContainer(t);
    const pages = container.listBlobsFlat().byPage({ maxPageSize: -1 });
    const error = await refused(pages.next(), 400, "OutOfRangeQueryParameterValue");
    assert.equal(error.details.QueryParameterName, "maxresults");
});

// By hierarchy

for (const maxPageSize of [undefined, 1, 2, 3]) {
    test(`by hierarchy, in pages of ${maxPageSize ?? "any size"}`, async (t) => {
        const container = await newTree(t);
        assert.deepEqual(
            await walked(container, undefined, maxPageSize),
            inOrder(["a", "[a/]", "b", "[c/]", "[d/]", "[é/]"]),
        );
        const inside = await walked(container, "a/", maxPageSize);
        assert.deepEqual(inside, inOrder(["a/1", "a/2", "[a/b/]"]));
        assert.deepEqual(await walked(container, "a/b/", maxPageSize), ["a/b/1", "a/b/2"]);
        assert.deepEqual(await walked(container, "d/", maxPageSize), ["[d//]"]);
    });
}

test("kinds of items in a hierarchical list", async (t) => {
    const container = await newTree(t);
    const items = await collect(container.listBlobsByHierarchy("/", { prefix: "a/" }));
    const kinds = Object.fromEntries(items.map(({ name, kind }) => [name, kind]));
    assert.deepEqual(kinds, { "a/1": "blob", "a/2": "blob", "a/b/": "prefix" });
});

test("delimiters of more than one character", async (t) => {
    const container = await newTree(t, ["x--1", "x--2", "x-3", "y"]);
    const items = await collect(container.listBlobsByHierarchy("--"));
    assert.deepEqual(inOrder(namesOf(items)), ["x--", "x-3", "y"]);
});

// Names

const NAMES = [
    "étagère/書棚/📚",
    " blanks around ",
    "100% + 1 = ?#&;,:@$!",
    "%41%2F%00 is not decoded",
    "a+b",
    "it's \"quoted\" `so` <&> ]]>",
    "~tilde^caret|bar{brace}[bracket]",
    "trailing.",
    "trailing...",
    "trailing/",
    "trailing//",
    "/leading",
    "two//slashes",
    "with.dots/and..more/file.tar.gz",
    "line\nfeed\rreturn\ttab",
    "control\u0001\u001f\u007f\u0085",
    "\ufffe and \uffff",
    "e\u0301 is not \u00e9",
    "é".repeat(1024),
];

for (const name of NAMES) {
    test(`a blob named ${JSON.stringify(name).slice(0, 60)}`, async (t) => {
        const container = await newTree(t, [name]);
        const blob = container.getBlobClient(name);
        assert.equal(blob.name, name);
        assert.equal(await text(await blob.download()), name);
        assert.deepEqual(await flat(container), [name]);
        assert.deepEqual(await flat(container, { prefix: name }), [name]);
        await blob.delete();
        assert.deepEqual(await flat(container), []);
    });
}

test("a backslash in a name is a slash", async (t) => {
    const container = await newTree(t, ["back\\slash"]);
    assert.deepEqual(await flat(container), ["back/slash"]);
    for (const name of ["back\\slash", "back/slash"]) {
        const blob = container.getBlobClient(name);
        assert.equal(blob.name, "back/slash");
        assert.equal(await text(await blob.download()), "back\\slash");
    }
});

test("all these names together, paged and hierarchical", async (t) => {
    const container = await newTree(t, NAMES);
    const pages = await collect(container.listBlobsFlat().byPage({ maxPageSize: 1 }));
    assert.deepEqual(
        pages.flatMap((page) => namesOf(page.segment.blobItems)),
        inOrder(NAMES),
    );
    const behind = (name) => (name.includes("/") ? `[${name.split("/")[0]}/]` : name);
    assert.deepEqual(await walked(container), inOrder(new Set(NAMES.map(behind))));
});

test("a prefix that XML cannot contain", async (t) => {
    const container = await newTree(t, ["a\u0001/b", "a\u0001/c"]);
    assert.deepEqual(await walked(container), ["[a\u0001/]"]);
    assert.deepEqual(await walked(container, "a\u0001/", 1), ["a\u0001/b", "a\u0001/c"]);
});

test("a name that is too long", async (t) => {
    const container = await newContainer(t);
    await refused(container.uploadBlockBlob("a".repeat(1025), "", 0), 400, "OutOfRangeInput");
});
