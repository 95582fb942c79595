// Authorization: account keys, SAS tokens from the SDK and stored access policies.

import assert from "node:assert/strict";
import test from "node:test";

import {
    AccountSASPermissions,
    FileSASPermissions,
    ShareClient,
    ShareFileClient,
    ShareSASPermissions,
    ShareServiceClient,
    StorageSharedKeyCredential,
} from "@azure/storage-file-share";

import { HOUR_MS, fromNow, names, newFile, newShare, options, refused, service } from "./clients.mjs";

const expiresOn = fromNow(HOUR_MS);

const failed = (request) => refused(request, 403, "AuthenticationFailed");
const mismatched = (request) => refused(request, 403, "AuthorizationPermissionMismatch");

/** Returns a client for a URL that contains a SAS. */
const holder = (Client, url) => new Client(url, undefined, options);

test("a wrong key", async () => {
    const key = Buffer.from("wrong").toString("base64");
    const credential = new StorageSharedKeyCredential(service.accountName, key);
    await failed(new ShareServiceClient(service.url, credential, options).getProperties());
});

test("a SAS for a file", async (t) => {
    const share = await newShare(t);
    const file = await newFile(share.rootDirectoryClient, "Report 1", "12345");
    const read = file.generateSasUrl({ expiresOn, permissions: FileSASPermissions.parse("r") });
    const reader = holder(ShareFileClient, read);
    assert.equal((await reader.downloadToBuffer()).toString(), "12345");
    await mismatched(reader.uploadRange("a", 0, 1));
    const written = file.generateSasUrl({ expiresOn, permissions: FileSASPermissions.parse("w") });
    await holder(ShareFileClient, written).uploadRange("a", 0, 1);
    assert.equal((await reader.downloadToBuffer()).toString(), "a2345");
    await failed(holder(ShareFileClient, read.replace("Report%201", "Other")).getProperties());
    const expired = { expiresOn: fromNow(-HOUR_MS), permissions: FileSASPermissions.parse("r") };
    await failed(holder(ShareFileClient, file.generateSasUrl(expired)).getProperties());
});

test("a SAS for a share, and its access policy", async (t) => {
    const share = await newShare(t);
    await newFile(share.rootDirectoryClient, "Report", "12345");
    const listed = share.generateSasUrl({ expiresOn, permissions: ShareSASPermissions.parse("rl") });
    const reader = holder(ShareClient, listed);
    assert.deepEqual(await names(reader.rootDirectoryClient), ["Report"]);
    await mismatched(reader.rootDirectoryClient.deleteFile("Report"));
    const accessPolicy = { expiresOn, permissions: "rd" };
    await share.setAccessPolicy([{ id: "deleters", accessPolicy }]);
    const deleter = holder(ShareClient, share.generateSasUrl({ identifier: "deleters" }));
    await deleter.rootDirectoryClient.deleteFile("Report");
    await share.setAccessPolicy([]);
    await failed(deleter.rootDirectoryClient.getFileClient("Report").getProperties());
});

test("a SAS for the account", async (t) => {
    const share = await newShare(t);
    const permissions = AccountSASPermissions.parse("rl");
    const url = service.generateAccountSasUrl(expiresOn, permissions, "sco");
    const reader = holder(ShareServiceClient, url).getShareClient(share.name);
    assert.deepEqual(await names(reader.rootDirectoryClient), []);
    await mismatched(reader.rootDirectoryClient.getFileClient("Report").create(1));
});
