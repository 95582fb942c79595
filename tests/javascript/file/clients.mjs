// File clients for the server under test.

import { ShareServiceClient } from "@azure/storage-file-share";

import { nextNumber } from "../harness.mjs";

export * from "../harness.mjs";

// No retries: a test must see every response.
export const options = { retryOptions: { maxTries: 1 } };

export const service = ShareServiceClient.fromConnectionString(
    process.env.AZURE_STORAGE_CONNECTION_STRING,
    options,
);

export const unique = (prefix = "share") => `${prefix}-${process.pid}-${nextNumber()}`;

/** Creates a share that is deleted after the test. */
export async function newShare(t, settings = {}) {
    const share = service.getShareClient(unique());
    await share.create(settings);
    t.after(() => share.deleteIfExists({ deleteSnapshots: "include" }));
    return share;
}

/** Creates a file with this content. */
export async function newFile(directory, name, content, settings = {}) {
    const file = directory.getFileClient(name);
    await file.uploadData(Buffer.from(content), settings);
    return file;
}

/** Returns the names in a directory, in the order of the listing. */
export async function names(directory, settings = {}) {
    const found = [];
    for await (const entry of directory.listFilesAndDirectories(settings)) found.push(entry.name);
    return found;
}
