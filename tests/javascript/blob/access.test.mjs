// Authorization: account keys, SAS tokens from the SDK, stored access policies and anonymous callers.

import assert from "node:assert/strict";
import test from "node:test";

import {
    AccountSASPermissions,
    BlobClient,
    BlobSASPermissions,
    BlobServiceClient,
    BlockBlobClient,
    ContainerClient,
    ContainerSASPermissions,
    SASProtocol,
    StorageSharedKeyCredential,
    generateBlobSASQueryParameters,
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
const READ = BlobSASPermissions.parse("r");

const failed = (request) => refused(request, 403, "AuthenticationFailed");
const mismatched = (request) => refused(request, 403, "AuthorizationPermissionMismatch");
const unauthenticated = (request) => refused(request, 401, "NoAuthenticationInformation");

/** Returns a client for a URL that contains a SAS. */
const holder = (Client, url) => new Client(url, undefined, options);

// Keys

test("a wrong key", async () => {
    const key = Buffer.from("wrong").toString("base64");
    const credential = new StorageSharedKeyCredential(service.accountName, key);
    const unauthorized = new BlobServiceClient(service.url, credential, options);
    await failed(unauthorized.getProperties());
    await failed(unauthorized.getContainerClient("never").create());
    await failed(unauthorized.getContainerClient("never").getBlobClient("never").getProperties());
});

test("an unknown account", async () => {
    const key = Buffer.alloc(64).toString("base64");
    const credential = new StorageSharedKeyCredential("unknown", key);
    const url = service.url.replace(service.accountName, "unknown");
    await failed(new BlobServiceClient(url, credential, options).getProperties());
});

// Account SAS

test("an account SAS with all permissions", async () => {
    const permissions = AccountSASPermissions.parse("rwdlacup");
    const url = service.generateAccountSasUrl(expiresOn, permissions, "sco");
    const account = holder(BlobServiceClient, url);
    const { containerClient } = await account.createContainer(unique());
    const { blockBlobClient } = await containerClient.uploadBlockBlob("a b+c", "content", 7);
    assert.equal(await text(await blockBlobClient.download()), "content");
    const listed = await collect(containerClient.listBlobsFlat());
    assert.deepEqual(listed.map(({ name }) => name), ["a b+c"]);
    const prefix = containerClient.containerName;
    assert.equal((await collect(account.listContainers({ prefix }))).length, 1);
    await account.getProperties();
    await containerClient.delete();
});

test("an account SAS grants only its resource types and permissions", async (t) => {
    const blob = await newBlob(t);
    function address(letters, types, more) {
        const permissions = AccountSASPermissions.parse(letters);
        const url = service.generateAccountSasUrl(expiresOn, permissions, types, more);
        return holder(BlobServiceClient, url);
    }
    const blobOf = (account) =>
        account.getContainerClient(blob.containerName).getBlockBlobClient(blob.name);

    const reader = address("r", "o");
    assert.equal(await text(await blobOf(reader).download()), "content");
    await mismatched(blobOf(reader).upload("", 0));
    await mismatched(blobOf(reader).delete());
    const wrongType = "AuthorizationResourceTypeMismatch";
    await refused(collect(reader.listContainers()), 403, wrongType);
    await refused(blobOf(address("r", "sc")).download(), 403, wrongType);

    const later = address("r", "o", { startsOn: fromNow(HOUR_MS / 2) });
    await failed(blobOf(later).download());
    const encrypted = address("r", "o", { protocol: SASProtocol.Https });
    await refused(blobOf(encrypted).download(), 403, "AuthorizationProtocolMismatch");
    const otherAddress = address("r", "o", { ipRange: { start: "192.0.2.1", end: "192.0.2.9" } });
    await refused(blobOf(otherAddress).download(), 403, "AuthorizationSourceIPMismatch");
    const here = address("r", "o", { ipRange: { start: "127.0.0.1" } });
    await blobOf(here).download();
});

// Service SAS

test("a blob SAS", async (t) => {
    const blob = await newBlob(t);
    const url = await blob.generateSasUrl({ expiresOn, permissions: READ });
    const reader = holder(BlockBlobClient, url);
    assert.equal(await text(await reader.download()), "content");
    assert.equal((await reader.getProperties()).contentLength, 7);
    await mismatched(reader.upload("", 0));
    await mismatched(reader.setMetadata({}));
    await mismatched(reader.delete());
    await failed(holder(BlobClient, url.replace("/blob?", "/other?")).download());
    await failed(holder(BlobClient, url.replace("sp=r", "sp=rw")).download());
});

for (const name of ["étagère/書棚", "📚 100% + 1 = ?#&", "it's <\"so\">", "a\u0001b", "x./"]) {
    test(`the SAS of a blob named ${JSON.stringify(name)}`, async (t) => {
        const container = await newContainer(t);
        const { blockBlobClient } = await container.uploadBlockBlob(name, "content", 7);
        const url = await blockBlobClient.generateSasUrl({ expiresOn, permissions: READ });
        assert.equal(await text(await holder(BlobClient, url).download()), "content");
    });
}

test("a SAS expires", async (t) => {
    const blob = await newBlob(t);
    const past = { expiresOn: fromNow(-1000), permissions: READ };
    await failed(holder(BlobClient, await blob.generateSasUrl(past)).download());
});

test("the create permission does not allow overwrites", async (t) => {
    const container = await newContainer(t);
    const permissions = BlobSASPermissions.parse("c");
    const blob = container.getBlobClient("blob");
    const url = await blob.generateSasUrl({ expiresOn, permissions });
    const creator = holder(BlockBlobClient, url);
    await creator.upload("first", 5);
    await refused(creator.upload("second", 6), 403, "UnauthorizedBlobOverwrite");
    await mismatched(creator.download());
    assert.equal(await text(await blob.download()), "first");
});

test("a SAS overrides response headers", async (t) => {
    const blob = await newBlob(t);
    const wished = {
        cacheControl: "no-store",
        contentDisposition: "attachment; filename=a+b c.txt",
        contentEncoding: "identity",
        contentLanguage: "fr",
        contentType: "text/plain; charset=utf-8",
    };
    const url = await blob.generateSasUrl({ expiresOn, permissions: READ, ...wished });
    const got = await holder(BlobClient, url).download();
    for (const [name, value] of Object.entries(wished)) assert.equal(got[name], value, name);
});

test("a container SAS", async (t) => {
    const container = await newContainer(t);
    await container.uploadBlockBlob("blob", "content", 7);
    const permissions = ContainerSASPermissions.parse("racwdl");
    const url = await container.generateSasUrl({ expiresOn, permissions });
    const guest = holder(ContainerClient, url);
    assert.equal((await collect(guest.listBlobsFlat())).length, 1);
    await guest.uploadBlockBlob("new/one", "", 0);
    await guest.deleteBlob("new/one");
    assert.equal(await text(await guest.getBlobClient("blob").download()), "content");
    await refused(guest.getAccessPolicy(), 403, "AuthorizationFailure");

    const list = ContainerSASPermissions.parse("l");
    const lister = await container.generateSasUrl({ expiresOn, permissions: list });
    await mismatched(holder(ContainerClient, lister).getBlobClient("blob").download());
    const read = ContainerSASPermissions.parse("r");
    const reader = await container.generateSasUrl({ expiresOn, permissions: read });
    await mismatched(collect(holder(ContainerClient, reader).listBlobsFlat()));
});

// Stored access policies

test("a stored access policy applies to the next request", async (t) => {
    const container = await newContainer(t);
    await container.uploadBlockBlob("blob", "content", 7);
    const keep = (permissions, end = expiresOn) =>
        container.setAccessPolicy(undefined, [
            { id: "guests", accessPolicy: { expiresOn: end, permissions } },
        ]);
    const names = { containerName: container.containerName, identifier: "guests" };
    const token = generateBlobSASQueryParameters(names, service.credential);
    const guest = holder(ContainerClient, `${container.url}?${token}`);
    const blob = guest.getBlobClient("blob");

    await failed(blob.download());
    await keep("r");
    assert.equal(await text(await blob.download()), "content");
    await mismatched(collect(guest.listBlobsFlat()));
    await keep("rl");
    assert.equal((await collect(guest.listBlobsFlat())).length, 1);
    await keep("rl", fromNow(-HOUR_MS));
    await failed(blob.download());
    await keep("rl");
    await blob.download();
    await container.setAccessPolicy();
    await failed(blob.download());
});

// Anonymous callers

test("a private container", async (t) => {
    const blob = await newBlob(t);
    await unauthenticated(holder(BlobClient, blob.url).download());
    await unauthenticated(holder(BlobClient, blob.url).getProperties());
    const container = holder(ContainerClient, service.getContainerClient(blob.containerName).url);
    await unauthenticated(collect(container.listBlobsFlat()));
    await unauthenticated(container.uploadBlockBlob("other", "", 0));
    await unauthenticated(collect(holder(BlobServiceClient, service.url).listContainers()));
});

test("public blobs", async (t) => {
    const container = await newContainer(t, { access: "blob" });
    await container.uploadBlockBlob("blob", "content", 7);
    const anybody = holder(ContainerClient, container.url);
    assert.equal(await text(await anybody.getBlobClient("blob").download()), "content");
    await refused(anybody.getBlobClient("missing").download(), 404, "BlobNotFound");
    await unauthenticated(collect(anybody.listBlobsFlat()));
    await unauthenticated(anybody.uploadBlockBlob("blob", "", 0));
    await unauthenticated(anybody.deleteBlob("blob"));
});

test("a public container", async (t) => {
    const container = await newContainer(t, { access: "container" });
    await container.uploadBlockBlob("blob", "content", 7);
    const anybody = holder(ContainerClient, container.url);
    assert.equal(await text(await anybody.getBlobClient("blob").download()), "content");
    assert.equal((await collect(anybody.listBlobsFlat())).length, 1);
    assert.equal((await anybody.getProperties()).blobPublicAccess, "container");
    await unauthenticated(anybody.getAccessPolicy());
    await unauthenticated(anybody.delete());
    await container.setAccessPolicy();
    await unauthenticated(anybody.getBlobClient("blob").download());
});
