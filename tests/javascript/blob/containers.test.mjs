// Containers: creation, properties, metadata, access policies and deletion.

import assert from "node:assert/strict";
import test from "node:test";

import { BlobClient } from "@azure/storage-blob";

import {
    HOUR_MS,
    collect,
    fromNow,
    newContainer,
    options,
    refused,
    service,
    shifted,
    unique,
} from "./clients.mjs";

test("creating, reading and deleting a container", async () => {
    const container = service.getContainerClient(unique());
    assert.equal(await container.exists(), false);
    const created = await container.create({ metadata: { Some: "thing" } });
    assert.equal(created._response.status, 201);
    assert.ok(created.requestId);
    assert.ok(created.version);
    assert.equal(await container.exists(), true);

    const shown = await container.getProperties();
    assert.equal(shown.etag, created.etag);
    assert.deepEqual(shown.lastModified, created.lastModified);
    assert.ok(Math.abs(Date.now() - shown.lastModified) < 60_000);
    // Node converts header names, and so metadata names, to lower case.
    assert.deepEqual(shown.metadata, { some: "thing" });
    assert.equal(shown.leaseStatus, "unlocked");
    assert.equal(shown.leaseState, "available");
    assert.equal(shown.blobPublicAccess, undefined);
    assert.equal(shown.hasImmutabilityPolicy, false);
    assert.equal(shown.hasLegalHold, false);

    const deleted = await container.delete();
    assert.equal(deleted._response.status, 202);
    assert.equal(await container.exists(), false);
});

test("the client request id is returned", async (t) => {
    const container = await newContainer(t);
    const shown = await container.getProperties();
    const sent = shown._response.request.headers.get("x-ms-client-request-id");
    assert.ok(sent);
    assert.equal(shown.clientRequestId, sent);
});

test("an existing container is not created again", async (t) => {
    const container = await newContainer(t);
    const error = await refused(container.create(), 409, "ContainerAlreadyExists");
    assert.match(error.message, /^The specified container already exists\.\nRequestId:/);
    const again = await container.createIfNotExists();
    assert.equal(again.succeeded, false);
    assert.equal(again.errorCode, "ContainerAlreadyExists");
});

test("one of many concurrent creations succeeds", async (t) => {
    const container = service.getContainerClient(unique());
    t.after(() => container.delete());
    const answers = await Promise.all(
        Array.from({ length: 10 }, () => container.createIfNotExists()),
    );
    assert.equal(answers.filter((answer) => answer.succeeded).length, 1);
});

test("a container is deleted if it exists", async () => {
    const container = service.getContainerClient(unique());
    assert.equal((await container.createIfNotExists()).succeeded, true);
    assert.equal((await container.deleteIfExists()).succeeded, true);
    const again = await container.deleteIfExists();
    assert.equal(again.succeeded, false);
    assert.equal(again.errorCode, "ContainerNotFound");
});

test("the name of a deleted container is free at once, and its blobs are deleted", async (t) => {
    const container = await newContainer(t);
    await container.uploadBlockBlob("blob", "old", 3);
    await container.delete();
    await container.create();
    assert.deepEqual(await collect(container.listBlobsFlat()), []);
    await refused(container.getBlobClient("blob").download(), 404, "BlobNotFound");
});

test("operations on a missing container", async () => {
    const container = service.getContainerClient(unique());
    const missing = (request) => refused(request, 404, "ContainerNotFound");
    await missing(container.getProperties());
    await missing(container.getAccessPolicy());
    await missing(container.setAccessPolicy());
    await missing(container.setMetadata({}));
    await missing(container.delete());
    await missing(container.getBlobLeaseClient().acquireLease(15));
    await missing(container.uploadBlockBlob("blob", "", 0));
    await missing(container.getBlobClient("blob").download());
    await missing(collect(container.listBlobsFlat()));
    await missing(collect(container.listBlobsByHierarchy("/")));
    assert.equal(await container.getBlobClient("blob").exists(), false);
});

test("containers created and deleted through the service client", async () => {
    const { containerClient } = await service.createContainer(unique());
    assert.equal(await containerClient.exists(), true);
    await service.deleteContainer(containerClient.containerName);
    assert.equal(await containerClient.exists(), false);
});

for (const name of ["$root", "$web", "0-1", "a".repeat(63)]) {
    test(`the valid name ${name}`, async (t) => {
        const container = service.getContainerClient(name);
        await container.create();
        t.after(() => container.delete());
        assert.equal(await container.exists(), true);
    });
}

for (const [name, code] of [
    ["ab", "OutOfRangeInput"],
    ["a".repeat(64), "OutOfRangeInput"],
    ["Abc", "InvalidResourceName"],
    ["a--b", "InvalidResourceName"],
    ["étagère", "InvalidResourceName"],
]) {
    test(`the invalid name ${name}`, async () => {
        await refused(service.getContainerClient(name).create(), 400, code);
    });
}

test("blobs without a container are in the root container", async (t) => {
    const root = service.getContainerClient("$root");
    await root.create();
    t.after(() => root.delete());
    await root.uploadBlockBlob("at-the-top", "content", 7);
    const url = `${service.url.replace(/\/$/, "")}/at-the-top`;
    const blob = new BlobClient(url, service.credential, options);
    assert.equal((await blob.getProperties()).contentLength, 7);
});

test("setting metadata replaces all of it", async (t) => {
    const container = await newContainer(t, { metadata: { first: "1", second: "2" } });
    const changed = await container.setMetadata({ third: " with blanks inside " });
    const shown = await container.getProperties();
    assert.deepEqual(shown.metadata, { third: "with blanks inside" });
    assert.equal(shown.etag, changed.etag);
    await container.setMetadata();
    assert.deepEqual((await container.getProperties()).metadata, {});
});

for (const [metadata, code] of [
    [{ "1st": "x" }, "InvalidMetadata"],
    [{ "with-dash": "x" }, "InvalidMetadata"],
    [{ large: "x".repeat(8192) }, "MetadataTooLarge"],
]) {
    test(`invalid metadata ${JSON.stringify(metadata).slice(0, 40)}`, async (t) => {
        const container = await newContainer(t, { metadata: { kept: "yes" } });
        await refused(container.setMetadata(metadata), 400, code);
        assert.deepEqual((await container.getProperties()).metadata, { kept: "yes" });
    });
}

test("date conditions on metadata and deletion", async (t) => {
    const container = await newContainer(t);
    const { lastModified } = await container.getProperties();
    const before = shifted(lastModified, -HOUR_MS);
    const after = shifted(lastModified, HOUR_MS);
    const unmet = (request) => refused(request, 412, "ConditionNotMet");
    await unmet(container.setMetadata({ a: "1" }, { conditions: { ifModifiedSince: after } }));
    await container.setMetadata({ a: "2" }, { conditions: { ifModifiedSince: before } });
    assert.deepEqual((await container.getProperties()).metadata, { a: "2" });
    await unmet(container.delete({ conditions: { ifUnmodifiedSince: before } }));
    await unmet(container.delete({ conditions: { ifModifiedSince: after } }));
    await container.delete({ conditions: { ifUnmodifiedSince: after } });
    assert.equal(await container.exists(), false);
});

test("public access is stored", async (t) => {
    const container = await newContainer(t, { access: "blob" });
    assert.equal((await container.getProperties()).blobPublicAccess, "blob");
    await container.setAccessPolicy("container");
    assert.equal((await container.getProperties()).blobPublicAccess, "container");
    assert.equal((await container.getAccessPolicy()).blobPublicAccess, "container");
    await container.setAccessPolicy();
    assert.equal((await container.getAccessPolicy()).blobPublicAccess, undefined);
});

test("access policies are stored", async (t) => {
    const container = await newContainer(t);
    const startsOn = fromNow(-HOUR_MS);
    const expiresOn = fromNow(HOUR_MS);
    const policies = [
        { id: "readers <&>", accessPolicy: { startsOn, expiresOn, permissions: "rl" } },
        { id: "open", accessPolicy: { expiresOn, permissions: "racwdl" } },
    ];
    const changed = await container.setAccessPolicy(undefined, policies);
    const shown = await container.getAccessPolicy();
    assert.equal(shown.etag, changed.etag);
    assert.deepEqual(
        shown.signedIdentifiers.map((policy) => policy.id),
        ["readers <&>", "open"],
    );
    const [readers, open] = shown.signedIdentifiers.map((policy) => policy.accessPolicy);
    assert.deepEqual(readers, policies[0].accessPolicy);
    assert.equal(open.startsOn, undefined);
    assert.equal(open.permissions, "racwdl");
    await container.setAccessPolicy();
    assert.deepEqual((await container.getAccessPolicy()).signedIdentifiers, []);
});

test("at most five access policies", async (t) => {
    const container = await newContainer(t);
    const accessPolicy = { expiresOn: fromNow(HOUR_MS), permissions: "r" };
    const policies = Array.from({ length: 6 }, (_, index) => ({ id: `${index}`, accessPolicy }));
    await container.setAccessPolicy(undefined, policies.slice(0, 5));
    await refused(container.setAccessPolicy(undefined, policies), 400, "InvalidXmlDocument");
    assert.equal((await container.getAccessPolicy()).signedIdentifiers.length, 5);
});
