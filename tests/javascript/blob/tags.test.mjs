// Tags: setting and reading, searches, and conditions on tags.

import assert from "node:assert/strict";
import test from "node:test";

import {
    AccountSASPermissions,
    BlobServiceClient,
    ContainerClient,
    ContainerSASPermissions,
} from "@azure/storage-blob";

import {
    HOUR_MS,
    collect,
    fromNow,
    newBlob,
    newContainer,
    options,
    refused,
    service,
    text,
    unique,
} from "./clients.mjs";

const expiresOn = fromNow(HOUR_MS);
const ODD = { "a b": "c d", "+-./:=_": "=_:/.-+", empty: "" };

async function namesFound(items) {
    return (await collect(items)).map(({ name }) => name);
}

test("tags are returned as they were set", async (t) => {
    const blob = await newBlob(t);
    assert.deepEqual((await blob.getTags()).tags, {});
    const { etag } = await blob.getProperties();
    const set = await blob.setTags(ODD);
    assert.equal(set._response.status, 204);
    assert.deepEqual((await blob.getTags()).tags, ODD);
    const shown = await blob.getProperties();
    assert.equal(shown.etag, etag);
    assert.equal(shown.tagCount, 3);
    assert.equal((await blob.download()).tagCount, 3);
    await blob.setTags({});
    assert.deepEqual((await blob.getTags()).tags, {});
    assert.equal((await blob.getProperties()).tagCount, undefined);
});

test("blobs are created with tags", async (t) => {
    const container = await newContainer(t);
    const block = container.getBlockBlobClient("block");
    await block.upload("content", 7, { tags: ODD });
    const data = container.getBlockBlobClient("data");
    await data.uploadData(Buffer.alloc(30), { blockSize: 10, maxSingleShotSize: 10, tags: ODD });
    const log = container.getAppendBlobClient("log");
    await log.create({ tags: ODD });
    const disk = container.getPageBlobClient("disk");
    await disk.create(512, { tags: ODD });
    for (const blob of [block, data, log, disk]) {
        assert.deepEqual((await blob.getTags()).tags, ODD, blob.name);
    }
    const listed = await collect(container.listBlobsFlat({ includeTags: true }));
    assert.deepEqual(
        listed.map(({ name, tags }) => [name, tags]),
        ["block", "data", "disk", "log"].map((name) => [name, ODD]),
    );
    await block.upload("other", 5);
    assert.deepEqual((await block.getTags()).tags, {});
});

test("a snapshot keeps its tags", async (t) => {
    const blob = await newBlob(t, "content", { tags: { state: "old" } });
    const past = blob.withSnapshot((await blob.createSnapshot()).snapshot);
    await blob.setTags({ state: "new" });
    assert.deepEqual((await past.getTags()).tags, { state: "old" });
    assert.deepEqual((await blob.getTags()).tags, { state: "new" });
});

test("invalid tags", async (t) => {
    const blob = await newBlob(t, "content", { tags: { kept: "yes" } });
    const many = Object.fromEntries(Array.from({ length: 11 }, (_, n) => [`tag${n}`, "value"]));
    for (const tags of [many, { ["x".repeat(129)]: "" }, { a: "x".repeat(257) }]) {
        await refused(blob.setTags(tags), 400, "TagsTooLarge");
    }
    await refused(blob.setTags({ "a!": "b" }), 400, "InvalidXmlNodeValue");
    assert.deepEqual((await blob.getTags()).tags, { kept: "yes" });
});

test("conditions on tags", async (t) => {
    const blob = await newBlob(t, "old", { tags: { state: "open", level: "5" } });
    const where = (tagConditions) => ({ conditions: { tagConditions } });
    const unmet = where("state = 'closed'");
    const met = where("state = 'open' AND level >= '3'");
    await refused(blob.upload("new", 3, unmet), 412, "ConditionNotMet");
    await refused(blob.setMetadata({}, unmet), 412, "ConditionNotMet");
    await refused(blob.download(0, undefined, unmet), 412, "ConditionNotMet");
    await refused(blob.getTags(unmet), 412, "ConditionNotMet");
    await refused(blob.setTags({}, unmet), 412, "ConditionNotMet");
    await refused(blob.delete(unmet), 412, "ConditionNotMet");
    assert.equal(await text(await blob.download(0, undefined, met)), "old");
    await blob.setTags({ state: "closed" }, met);
    await refused(blob.setTags({}, met), 412, "ConditionNotMet");
    await blob.delete(unmet);
});

test("searches of the account", async (t) => {
    const [one, other] = [await newContainer(t), await newContainer(t)];
    const mark = unique("mark");
    for (const [container, number] of [[one, 1], [other, 2]]) {
        for (const name of ["a", "ü <&>"]) {
            const tags = { mark, number: String(number), more: "yes" };
            await container.getBlockBlobClient(name).upload("", 0, { tags });
        }
    }
    const where = `mark = '${mark}' AND number >= '1'`;
    const all = await collect(service.findBlobsByTags(where));
    assert.deepEqual(
        all.map(({ containerName, name, tags, tagValue }) => [containerName, name, tags, tagValue]),
        [[one, "1"], [other, "2"]].flatMap(([{ containerName }, number]) =>
            ["a", "ü <&>"].map((name) => [containerName, name, { mark, number }, ""]),
        ),
    );
    const pages = [];
    for await (const page of service.findBlobsByTags(where).byPage({ maxPageSize: 3 })) {
        pages.push(page.blobs.map(({ name }) => name));
    }
    assert.deepEqual(pages, [["a", "ü <&>", "a"], ["ü <&>"]]);
    const scoped = `${where} AND @container = '${other.containerName}'`;
    const within = await collect(service.findBlobsByTags(scoped));
    assert.deepEqual(
        within.map(({ containerName }) => containerName),
        [other.containerName, other.containerName],
    );
});

test("searches of a container see current tags", async (t) => {
    const container = await newContainer(t);
    const blobs = ["a", "b", "c", "d"].map((name) => container.getBlockBlobClient(name));
    for (const [number, blob] of blobs.entries()) {
        await blob.upload("", 0, { tags: { number: String(number) } });
    }
    const from = (where) => namesFound(container.findBlobsByTags(where));
    assert.deepEqual(await from("number >= '1' AND number < '3'"), ["b", "c"]);
    await blobs[1].setTags({ number: "9" });
    await blobs[2].delete();
    await blobs[3].upload("", 0);
    assert.deepEqual(await from("number >= '1'"), ["b"]);
    assert.deepEqual(await from("number = '0'"), ["a"]);
    assert.deepEqual(await from("none = '0'"), []);
});

test("paged searches with a marker", async (t) => {
    const container = await newContainer(t);
    const names = ["a", "b", "c", "d", "e"];
    for (const name of names) {
        await container.getBlockBlobClient(name).upload("", 0, { tags: { of: "all" } });
    }
    const pages = container.findBlobsByTags("of = 'all'").byPage({ maxPageSize: 2 });
    const { value: first } = await pages.next();
    assert.deepEqual(first.blobs.map(({ name }) => name), ["a", "b"]);
    const { continuationToken } = first;
    const rest = container.findBlobsByTags("of = 'all'").byPage({ continuationToken });
    const { value: next } = await rest.next();
    assert.deepEqual(next.blobs.map(({ name }) => name), ["c", "d", "e"]);
});

test("invalid searches", async (t) => {
    const container = await newContainer(t);
    for (const where of ["a", "a <> '1'", "a = '1' OR b = '1'"]) {
        const search = collect(container.findBlobsByTags(where));
        await refused(search, 400, "InvalidQueryParameterValue");
    }
});

test("tags need their own permissions", async (t) => {
    const blob = await newBlob(t, "content", { tags: { a: "1" } });
    const container = service.getContainerClient(blob.containerName);
    async function holder(letters) {
        const permissions = ContainerSASPermissions.parse(letters);
        const url = await container.generateSasUrl({ permissions, expiresOn });
        return new ContainerClient(url, undefined, options);
    }
    const mismatched = (request) => refused(request, 403, "AuthorizationPermissionMismatch");
    const [writer, tagger, finder] = await Promise.all(["racwdl", "t", "f"].map(holder));
    await mismatched(writer.getBlobClient("blob").getTags());
    await mismatched(writer.getBlobClient("blob").setTags({}));
    await mismatched(writer.getBlockBlobClient("new").upload("", 0, { tags: { a: "1" } }));
    await mismatched(namesFound(tagger.findBlobsByTags("a = '1'")));
    await tagger.getBlobClient("blob").setTags({ a: "2" });
    assert.deepEqual(await namesFound(finder.findBlobsByTags("a = '2'")), ["blob"]);
    const url = service.generateAccountSasUrl(expiresOn, AccountSASPermissions.parse("tf"), "sco");
    const account = new BlobServiceClient(url, undefined, options);
    const where = `@container = '${blob.containerName}' AND a = '2'`;
    assert.deepEqual(await namesFound(account.findBlobsByTags(where)), ["blob"]);
});
