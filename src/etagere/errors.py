"""The one table of errors: code, HTTP status, message, and NTSTATUS where SMB has an equivalent.

Every front end answers from these rows, so that a refusal reads the same as XML, as JSON and
over SMB. A row has an NTSTATUS only if the file service can refuse with it towards an SMB client.
Messages are complete sentences; request id and time are added by the edge.

A code stands once, whichever services use it. `STATUS_BY_SERVICE` holds the few whose status
depends on the service, `OTHER_STATUSES` the few where it depends on the request.
"""

from __future__ import annotations

from typing import Final

import msgspec

from etagere.nt_status import NtStatus


class Error(msgspec.Struct, frozen=True):
    """A row of the table of errors."""

    code: str
    status: int
    message: str
    nt_status: int | None = None


# A row reads as one or two lines, which the formatter would spread over five.
# fmt: off
_COMMON: Final = (
    Error("AccountAlreadyExists", 409, "The specified account already exists."),
    Error("AccountBeingCreated", 409, "The specified account is in the process of being created."),
    Error("AccountIsDisabled", 403,
          "The specified account is disabled.", NtStatus.ACCOUNT_DISABLED),
    Error("AccountProtectedFromDeletion", 409,
          "The account holds data that must not be deleted yet."),
    Error("AccountRequiresHttps", 400, "The account being accessed does not support http."),
    Error("AuthenticationFailed", 403,
          "Server failed to authenticate the request. Make sure the value of Authorization header "
          "is formed correctly including the signature.", NtStatus.LOGON_FAILURE),
    Error("AuthorizationFailure", 403,
          "This request is not authorized to perform this operation.", NtStatus.ACCESS_DENIED),
    Error("AuthorizationPermissionMismatch", 403,
          "This request is not authorized to perform this operation using this permission.",
          NtStatus.ACCESS_DENIED),
    Error("AuthorizationProtocolMismatch", 403,
          "This request is not authorized to perform this operation using this protocol."),
    Error("AuthorizationResourceTypeMismatch", 403,
          "This request is not authorized to perform this operation using this resource type."),
    Error("AuthorizationServiceMismatch", 403,
          "This request is not authorized to perform this operation using this service."),
    Error("AuthorizationSourceIPMismatch", 403,
          "This request is not authorized to perform this operation using this source IP address.",
          NtStatus.ACCESS_DENIED),
    Error("ConditionHeadersNotSupported", 400, "Condition headers are not supported."),
    Error("ConditionNotMet", 412,
          "The condition specified using HTTP conditional header(s) is not met."),
    Error("CorsPreflightFailure", 403,
          "CORS not enabled or no matching rule found for this request."),
    Error("Crc64Mismatch", 400,
          "The CRC64 value specified in the request did not match with the CRC64 value calculated "
          "by the server."),
    Error("EmptyMetadataKey", 400, "The key for one of the metadata key-value pairs is empty."),
    Error("FeatureVersionMismatch", 409,
          "The resource uses a feature that needs a newer service version than the request names."),
    Error("InsufficientAccountPermissions", 403,
          "The account being accessed does not have sufficient permissions to execute this "
          "operation.", NtStatus.ACCESS_DENIED),
    Error("InternalError", 500,
          "Server encountered an internal error. Please try again after some time.",
          NtStatus.INTERNAL_ERROR),
    Error("InvalidAuthenticationInfo", 400,
          "Authentication information is not given in the correct format. Check the value of "
          "Authorization header."),
    Error("InvalidHeaderValue", 400,
          "The value for one of the HTTP headers is not in the correct format."),
    Error("InvalidHttpVerb", 400,
          "The HTTP verb specified is invalid - it is not recognized by the server."),
    Error("InvalidInput", 400,
          "One of the request inputs is not valid.", NtStatus.INVALID_PARAMETER),
    Error("InvalidMd5", 400,
          "The MD5 value specified in the request is invalid. MD5 value must be 128 bits and "
          "base64-encoded."),
    Error("InvalidMetadata", 400,
          "The metadata specified is invalid. It has characters that are not permitted."),
    Error("InvalidQueryParameterValue", 400,
          "Value for one of the query parameters specified in the request URI is invalid."),
    Error("InvalidRange", 416,
          "The range specified is invalid for the current size of the resource.",
          NtStatus.END_OF_FILE),
    # The spelling is the service's: clients compare the text.
    Error("InvalidResourceName", 400,
          "The specifed resource name contains invalid characters.", NtStatus.OBJECT_NAME_INVALID),
    Error("InvalidUri", 400, "The requested URI does not represent any resource on the server."),
    Error("InvalidXmlDocument", 400, "XML specified is not syntactically valid."),
    Error("InvalidXmlNodeValue", 400,
          "The value for one of the XML nodes is not in the correct format."),
    Error("KeyBasedAuthenticationNotPermitted", 403,
          "Key based authentication is not permitted on this storage account."),
    Error("KeyVaultAccessTokenCannotBeAcquired", 403,
          "No token for the key vault of the account's encryption key could be acquired."),
    Error("KeyVaultEncryptionKeyNotFound", 403,
          "The account's encryption key is not found in its key vault."),
    Error("KeyVaultVaultNotFound", 403,
          "The key vault of the account's encryption key is not found."),
    Error("Md5Mismatch", 400,
          "The MD5 value specified in the request did not match with the MD5 value calculated by "
          "the server."),
    Error("MetadataTooLarge", 400, "The metadata specified exceeds the maximum allowed limit."),
    Error("MissingContentLengthHeader", 411, "Content-Length HTTP header is missing."),
    Error("MissingRequiredHeader", 400,
          "An HTTP header that's mandatory for this request is not specified."),
    Error("MissingRequiredQueryParameter", 400,
          "A query parameter that's mandatory for this request is not specified."),
    Error("MissingRequiredXmlNode", 400,
          "A required XML node was not specified in the request body."),
    Error("MultipleConditionHeadersNotSupported", 400,
          "Multiple condition headers are not supported."),
    Error("NoAuthenticationInformation", 401,
          "Server failed to authenticate the request. Please refer to the information in the "
          "www-authenticate header."),
    Error("OperationTimedOut", 500,
          "Operation could not be completed within the specified time.", NtStatus.IO_TIMEOUT),
    Error("OutOfRangeInput", 400,
          "One of the request inputs is out of range.", NtStatus.INVALID_PARAMETER),
    Error("OutOfRangeQueryParameterValue", 400,
          "One of the query parameters specified in the request URI is outside the permissible "
          "range."),
    Error("PublicAccessNotPermitted", 409,
          "Public access is not permitted on this storage account."),
    Error("RequestBodyTooLarge", 413,
          "The request body is too large and exceeds the maximum permissible limit.",
          NtStatus.INVALID_PARAMETER),
    Error("RequestUrlFailedToParse", 400, "The url in the request could not be parsed."),
    Error("ResourceAlreadyExists", 409,
          "The specified resource already exists.", NtStatus.OBJECT_NAME_COLLISION),
    Error("ResourceNotFound", 404,
          "The specified resource does not exist.", NtStatus.OBJECT_NAME_NOT_FOUND),
    # SMB tells "is a directory" from "is not a directory" (`Refusal.nt_status_override`).
    Error("ResourceTypeMismatch", 409,
          "The specified resource type does not match the type of the existing resource.",
          NtStatus.OBJECT_NAME_COLLISION),
    Error("ServerBusy", 503, "The server is busy.", NtStatus.INSUFFICIENT_RESOURCES),
    Error("UnsupportedHeader", 400,
          "One of the HTTP headers specified in the request is not supported."),
    Error("UnsupportedHttpVerb", 405, "The resource doesn't support the specified HTTP verb."),
    Error("UnsupportedQueryParameter", 400,
          "One of the query parameters specified in the request URI is not supported."),
    Error("UnsupportedXmlNode", 400,
          "One of the XML nodes specified in the request body is not supported."),
)

# Used by more than one of blob, file and dfs.
_SHARED: Final = (
    Error("CannotVerifyCopySource", 500,
          "Could not verify the copy source within the specified time."),
    Error("DirectoryNotEmpty", 409,
          "The specified directory is not empty.", NtStatus.DIRECTORY_NOT_EMPTY),
    Error("LeaseAlreadyBroken", 409,
          "The lease has already been broken and cannot be broken again."),
    Error("LeaseAlreadyPresent", 409, "There is already a lease present."),
    Error("LeaseIdMismatchWithLeaseOperation", 409,
          "The lease ID specified did not match the lease ID for the blob."),
    Error("LeaseIdMissing", 412,
          "There is currently a lease on the blob and no lease ID was specified in the request.",
          NtStatus.SHARING_VIOLATION),
    Error("LeaseIsBreakingAndCannotBeAcquired", 409,
          "The lease ID matched, but the lease is currently in breaking state and cannot be "
          "acquired until it is broken."),
    Error("LeaseIsBreakingAndCannotBeChanged", 409,
          "The lease ID matched, but the lease is currently in breaking state and cannot be "
          "changed."),
    Error("LeaseIsBrokenAndCannotBeRenewed", 409,
          "The lease ID matched, but the lease has been broken explicitly and cannot be renewed."),
    Error("LeaseLost", 412,
          "A lease ID was specified, but the lease for the blob has expired."),
    Error("LeaseNotPresentWithLeaseOperation", 409, "There is currently no lease on the blob."),
    Error("NoPendingCopyOperation", 409, "There is currently no pending copy operation."),
    Error("PendingCopyOperation", 409, "There is currently a pending copy operation.",
          NtStatus.SHARING_VIOLATION),
    Error("PreviousSnapshotNotFound", 409, "The previous snapshot is not found."),
    Error("SourceConditionNotMet", 412,
          "The source condition specified using HTTP conditional header(s) is not met."),
)

_BLOB: Final = (
    Error("AccessTierNotSupportedForBlobType", 400,
          "The access tier is not supported for this blob type."),
    Error("AllBatchSubRequestsShouldBeSameApi", 400,
          "All requests of a batch must ask for the same operation."),
    Error("AppendPositionConditionNotMet", 412,
          "The append position condition specified was not met."),
    Error("BlobAccessTierNotSupportedForAccountType", 400,
          "Access tiers are not supported for this kind of account."),
    Error("BlobAlreadyExists", 409, "The specified blob already exists."),
    Error("BlobArchived", 409, "This operation is not permitted on an archived blob."),
    Error("BlobBeingRehydrated", 409,
          "This operation is not permitted because the blob is being rehydrated."),
    Error("BlobGenerationMismatch", 409,
          "The blob has been recreated since the previous snapshot was taken."),
    Error("BlobImmutableDueToLegalHold", 409,
          "This operation is not permitted as the blob is immutable due to one or more legal "
          "holds."),
    Error("BlobImmutableDueToPolicy", 409,
          "This operation is not permitted as the blob is immutable due to a policy."),
    Error("BlobIsSealed", 409,
          "The blob is sealed and its contents cannot be modified."),
    Error("BlobNotArchived", 409, "The specified blob is not archived."),
    Error("BlobNotFound", 404, "The specified blob does not exist."),
    Error("BlobOperationNotSupported", 409,
          "The operation is not supported on a blob with a hierarchical path."),
    Error("BlobOverwritten", 409,
          "The blob has been recreated since the specified snapshot was taken."),
    Error("BlobTierInadequateForContentLength", 409,
          "The specified blob tier size limit cannot be less than content length."),
    Error("BlobUsesCustomerSpecifiedEncryption", 409,
          "The blob is encrypted with customer specified encryption, but it was not provided in "
          "the request."),
    Error("BlockCountExceedsLimit", 409,
          "The number of blocks of the blob exceeds the maximum limit."),
    Error("BlockListTooLong", 400, "The block list may not contain more than 50,000 blocks."),
    Error("BothCrc64AndMd5HeaderPresent", 400,
          "Content-MD5 and x-ms-content-crc64 cannot be sent together."),
    Error("BothUserTagsAndSourceTagsCopyPresentException", 400,
          "Tags cannot be given in the request and copied from the source at once."),
    Error("CannotChangeToLowerTier", 409, "A higher blob tier has already been explicitly set."),
    Error("ContainerAlreadyExists", 409, "The specified container already exists."),
    Error("ContainerBeingDeleted", 409,
          "The specified container is being deleted. Try operation later."),
    Error("ContainerDisabled", 409,
          "The specified container has been disabled by the administrator."),
    Error("ContainerHasLegalHold", 409, "The specified container is under a legal hold."),
    Error("ContainerImmutabilityPolicyLocked", 409,
          "The immutability policy of the container is locked."),
    Error("ContainerNotFound", 404, "The specified container does not exist."),
    Error("ContentLengthLargerThanTierLimit", 409,
          "The blob's content length cannot exceed its tier limit."),
    Error("CopyAcrossAccountsNotSupported", 400,
          "The copy source account and destination account must be the same."),
    Error("CopyIdMismatch", 409,
          "The specified copy ID did not match the copy ID for the pending copy operation."),
    Error("DuplicateTagNames", 400, "A tag name was specified more than once."),
    Error("EmptyTagName", 400, "The name of one of the tags is empty."),
    Error("ExceedsMaxBatchRequestCount", 400,
          "The batch holds more requests than are allowed."),
    Error("IncrementalCopyBlobMismatch", 409,
          "The specified source blob is different than the copy source of the existing incremental "
          "copy blob."),
    Error("IncrementalCopyOfEarlierSnapshotNotAllowed", 409,
          "The source is an earlier snapshot than the last one copied."),
    Error("IncrementalCopyOfEarlierVersionSnapshotNotAllowed", 409,
          "The source is an earlier snapshot than the last one copied."),
    Error("IncrementalCopySourceMustBeSnapshot", 409,
          "The source for incremental copy request must be a snapshot."),
    Error("InfiniteLeaseDurationRequired", 412,
          "The lease ID matched, but the specified lease must be an infinite-duration lease."),
    Error("InvalidBlobOrBlock", 400, "The specified blob or block content is invalid."),
    Error("InvalidBlobTier", 400, "The specified blob tier is invalid."),
    Error("InvalidBlobType", 409, "The blob type is invalid for this operation."),
    Error("InvalidBlockId", 400,
          "The specified block ID is invalid. The block ID must be Base64-encoded."),
    Error("InvalidBlockList", 400, "The specified block list is invalid."),
    Error("InvalidOperation", 400, "The operation is not valid on this resource."),
    Error("InvalidPageRange", 416, "The page range specified is invalid."),
    Error("InvalidSourceBlobType", 409, "The copy source blob type is invalid for this operation."),
    Error("InvalidSourceBlobUrl", 409, "The source URL for the copy operation is not valid."),
    Error("InvalidVersionForPageBlobOperation", 400,
          "All operations on page blobs require at least version 2009-09-19."),
    Error("LeaseIdMismatchWithBlobOperation", 412,
          "The lease ID specified did not match the lease ID for the blob."),
    Error("LeaseIdMismatchWithContainerOperation", 412,
          "The lease ID specified did not match the lease ID for the container."),
    Error("LeaseNotPresentWithBlobOperation", 412, "There is currently no lease on the blob."),
    Error("LeaseNotPresentWithContainerOperation", 412,
          "There is currently no lease on the container."),
    Error("MaxBlobSizeConditionNotMet", 412, "The max blob size condition specified was not met."),
    Error("OperationNotAllowedOnIncrementalCopyBlob", 409,
          "The specified operation is not allowed on an incremental copy blob."),
    Error("PreviousSnapshotCannotBeNewer", 400,
          "The previous snapshot cannot be newer than the snapshot."),
    Error("PreviousSnapshotOperationNotSupported", 409,
          "The operation is not supported against that previous snapshot."),
    Error("RequestEntityTooLarge", 413, "The uploaded entity blob is too large."),
    Error("SequenceNumberConditionNotMet", 412,
          "The sequence number condition specified was not met."),
    Error("SequenceNumberIncrementTooLarge", 409,
          "The sequence number increment cannot be performed because it would result in overflow "
          "of the sequence number."),
    Error("SnapshotCountExceeded", 409, "The snapshot count against this blob has been exceeded."),
    Error("SnapshotOperationRateExceeded", 409,
          "The rate of snapshot operations against this blob has been exceeded."),
    Error("SnapshotsPresent", 409,
          "This operation is not permitted because the blob has snapshots."),
    Error("SystemInUse", 409, "This blob is in use by the system."),
    Error("TagsTooLarge", 400, "The tags specified exceed the maximum permissible limit."),
    Error("TargetConditionNotMet", 412,
          "The target condition specified using HTTP conditional header(s) is not met."),
    Error("UnauthorizedBlobOverwrite", 403,
          "This request is not authorized to perform blob overwrites."),
    Error("UnexpectedSyncCopyStatus", 409, "The synchronous copy ended in an unexpected state."),
    Error("UnsatisfiableCondition", 400,
          "The request includes an unsatisfiable condition for this operation."),
)

_QUEUE: Final = (
    Error("InvalidMarker", 400, "The specified marker is invalid."),
    Error("MessageNotFound", 404, "The specified message does not exist."),
    Error("MessageTooLarge", 400, "The message exceeds the maximum allowed size."),
    Error("PopReceiptMismatch", 400,
          "The specified pop receipt did not match the pop receipt for a dequeued message."),
    Error("QueueAlreadyExists", 409, "The specified queue already exists."),
    Error("QueueBeingDeleted", 409, "The specified queue is being deleted."),
    Error("QueueDisabled", 409, "The specified queue has been disabled by the administrator."),
    Error("QueueNotEmpty", 409, "The specified queue is not empty."),
    Error("QueueNotFound", 404, "The specified queue does not exist."),
)

_TABLE: Final = (
    Error("AccountIOPSLimitExceeded", 503, "The throughput limit of the account is reached."),
    Error("AtomFormatNotSupported", 415, "Atom format is not supported."),
    Error("CannotCreateTableWithIOPSGreaterThanMaxAllowedPerTable", 400,
          "The throughput asked for exceeds the maximum of a table."),
    Error("CommandsInBatchActOnDifferentPartitions", 400,
          "All commands in a batch must operate on same entity group."),
    Error("ContentLengthExceeded", 400,
          "The content length for the requested operation has exceeded the limit."),
    Error("DuplicateKeyPropertySpecified", 400, "A key property is specified more than one time."),
    Error("DuplicatePropertiesSpecified", 400, "A property is specified more than one time."),
    Error("EntityAlreadyExists", 409, "The specified entity already exists."),
    Error("EntityNotFound", 404, "The specified entity does not exist."),
    Error("EntityTooLarge", 400, "The entity is larger than the maximum size permitted."),
    Error("Forbidden", 403, "The request is not allowed."),
    Error("HostInformationNotPresent", 400,
          "The required host information is not present in the request."),
    Error("InvalidDuplicateRow", 400,
          "The batch request contains multiple changes with same row key. An entity can appear "
          "only once in a batch request."),
    Error("InvalidValueType", 400, "The value specified is invalid."),
    Error("JsonFormatNotSupported", 415, "JSON format is not supported."),
    Error("JsonVerboseFormatNotSupported", 415, "JSON verbose format is not supported."),
    Error("KeyValueTooLarge", 400, "A key value is larger than the maximum size permitted."),
    Error("MediaTypeNotSupported", 415, "None of the provided media types are supported"),
    Error("MethodNotAllowed", 405,
          "The requested method is not allowed on the specified resource."),
    Error("NotImplemented", 501,
          "The requested operation is not implemented on the specified resource."),
    Error("OperatorInvalid", 400, "The filter holds an unknown operator."),
    Error("PartitionKeyEqualityComparisonExpected", 400,
          "The filter must compare PartitionKey for equality."),
    Error("PartitionKeyNotSpecified", 400, "The required property PartitionKey is not specified."),
    Error("PartitionKeyPropertyCannotBeUpdated", 400,
          "The PartitionKey property cannot be updated."),
    Error("PartitionKeySpecified", 400, "PartitionKey must not be specified in this request."),
    Error("PerTableIOPSDecrementLimitReached", 400,
          "The throughput of the table was lowered too often."),
    Error("PerTableIOPSIncrementLimitReached", 400,
          "The throughput of the table was raised too often."),
    Error("PrimaryKeyPropertyIsInvalidType", 400,
          "The values of PartitionKey and RowKey must be strings."),
    Error("PropertiesNeedValue", 400,
          "The values are not specified for all properties in the entity."),
    Error("PropertyNameInvalid", 400, "The property name is invalid."),
    Error("PropertyNameTooLong", 400,
          "The property name exceeds the maximum allowed length (255)."),
    Error("PropertyValueTooLarge", 400,
          "The property value is larger than the maximum size permitted."),
    Error("SettingIOPSForATableInProvisioningNotAllowed", 400,
          "The throughput of a table that is still being provisioned cannot be set."),
    Error("TableAlreadyExists", 409, "The table specified already exists."),
    Error("TableBeingDeleted", 409, "The specified table is being deleted."),
    Error("TableHasNoProperties", 400, "The table has no properties."),
    Error("TableHasNoSuchProperty", 400, "The table has no property of that name."),
    Error("TableNotFound", 404, "The table specified does not exist."),
    Error("TooManyProperties", 400,
          "The entity contains more properties than allowed. Each entity can include up to 252 "
          "properties to store data. Each entity also has 3 system properties."),
    Error("UpdateConditionNotSatisfied", 412,
          "The update condition specified in the request was not satisfied."),
    Error("XMethodIncorrectCount", 400, "More than one X-HTTP-Method is specified."),
    Error("XMethodIncorrectValue", 400, "The specified X-HTTP-Method is invalid."),
    Error("XMethodNotUsingPost", 400,
          "The request uses X-HTTP-Method with an HTTP verb other than POST."),
)

_FILE: Final = (
    Error("CannotConvertToSddlDueToCustomAce", 400,
          "The permission holds a custom access control entry and has no SDDL form."),
    Error("CannotDeleteFileOrDirectory", 409,
          "The file or directory cannot be deleted.", NtStatus.CANNOT_DELETE),
    Error("CannotVerifyFileSnapshotSource", 500,
          "Could not verify the file snapshot source within the specified time."),
    # The service documents 408 and 500; 408 says what happened, and clients retry on either.
    Error("ClientCacheFlushDelay", 408,
          "The specified resource state could not be flushed from an SMB client in the specified "
          "time.", NtStatus.IO_TIMEOUT),
    Error("ContainerQuotaDowngradeNotAllowed", 409,
          "The quota of the share cannot be lowered at this moment."),
    # The service documents two names for this state; SMBDeletePending is the one we answer with.
    Error("DeletePending", 409,
          "The specified resource is marked for deletion by an SMB client.",
          NtStatus.DELETE_PENDING),
    Error("DeleteShareWhenSnapshotLeased", 409,
          "Unable to delete share because one or more share snapshots have active leases. Release "
          "the share snapshot leases or delete the share with the include-leased parameter for "
          "x-ms-delete-snapshots."),
    Error("FileGenerationMismatch", 409,
          "The file has been recreated since the previous snapshot was taken."),
    Error("FileInvalidPermission", 400,
          "The specified file permission is not valid.", NtStatus.INVALID_SECURITY_DESCR),
    Error("FileInvalidPermissionKey", 400,
          "The specified file permission key does not exist in the share."),
    Error("FileLockConflict", 409,
          "A portion of the specified file is locked by an SMB client.",
          NtStatus.FILE_LOCK_CONFLICT),
    Error("FileOAuthManagementApiRestrictedToSrp", 409,
          "This API does not support bearer tokens. For OAuth, use the Storage Resource Provider "
          "APIs instead. Learn more: https://aka.ms/azurefiles/restapi."),
    Error("FileOpenBySmbClient", 409,
          "The file is open by an SMB client.", NtStatus.SHARING_VIOLATION),
    Error("FileShareAccessTierTransitionNotAllowed", 409,
          "The access tier cannot change while an earlier change is running."),
    Error("FileShareProvisionedBandwidthDowngradeNotAllowed", 409,
          "The bandwidth of the share cannot be lowered at this moment."),
    Error("FileShareProvisionedBandwidthInvalid", 400, "The bandwidth asked for is out of range."),
    Error("FileShareProvisionedIopsDowngradeNotAllowed", 409,
          "The IOPS of the share cannot be lowered at this moment."),
    Error("FileShareProvisionedIopsInvalid", 400, "The IOPS asked for are out of range."),
    Error("FileShareProvisionedStorageInvalid", 400, "The size asked for is out of range."),
    Error("FileSnapshotCountExceeded", 409,
          "The number of snapshots of files of that name exceeds the limit."),
    Error("FileSnapshotSourceSignedAccessNotSupported", 400,
          "Source and target must both use signed access, or neither."),
    Error("HandleLimitExceeded", 400,
          "The number of open handles of the file exceeds the limit.",
          NtStatus.TOO_MANY_OPENED_FILES),
    Error("InvalidContinuationToken", 400, "The specified continuation token is invalid."),
    Error("InvalidFileOrDirectoryPathName", 400,
          "The path of the file or directory is too long or too deep.",
          NtStatus.OBJECT_NAME_INVALID),
    Error("LeaseIdMismatchWithFileOperation", 412,
          "The lease ID specified did not match the lease ID for the file."),
    Error("LeaseNotPresentWithFileOperation", 412, "There is currently no lease on the file."),
    Error("ParentNotFound", 404,
          "The specified parent path does not exist.", NtStatus.OBJECT_PATH_NOT_FOUND),
    # For writes. SMB refuses the delete of a read-only file with CANNOT_DELETE.
    Error("ReadOnlyAttribute", 409,
          "The specified resource is read-only and cannot be modified at this time.",
          NtStatus.ACCESS_DENIED),
    Error("SMBDeletePending", 409,
          "The specified resource is marked for deletion by an SMB client.",
          NtStatus.DELETE_PENDING),
    Error("ShareAlreadyExists", 409, "The specified share already exists."),
    Error("ShareBeingDeleted", 409,
          "The specified share is being deleted. Try operation later.",
          NtStatus.NETWORK_NAME_DELETED),
    Error("ShareDisabled", 403,
          "The specified share is disabled by the administrator.", NtStatus.ACCESS_DENIED),
    Error("ShareHasSnapshots", 409,
          "The share has snapshots and the operation requires no snapshots."),
    Error("ShareNotFound", 404, "The specified share does not exist.", NtStatus.BAD_NETWORK_NAME),
    Error("ShareSizeLimitReached", 403,
          "The size limit of the share is reached.", NtStatus.DISK_FULL),
    Error("ShareSnapshotCountExceeded", 409,
          "The total number of snapshots for the share is over the limit."),
    Error("ShareSnapshotInProgress", 409, "Another share snapshot operation is in progress."),
    Error("ShareSnapshotNotFound", 404,
          "The specified share snapshot does not exist.", NtStatus.OBJECT_NAME_NOT_FOUND),
    Error("ShareSnapshotOperationNotSupported", 400,
          "The specified operation is not supported on a share snapshot.",
          NtStatus.MEDIA_WRITE_PROTECTED),
    Error("SharingViolation", 409,
          "The specified resource may be in use by an SMB client.", NtStatus.SHARING_VIOLATION),
    Error("TotalSharesCountExceedsAccountLimit", 400,
          "The account has as many shares as it may have."),
    Error("TotalSharesProvisionedBandwidthExceedsAccountLimit", 400,
          "The bandwidth of all shares would exceed the limit of the account."),
    Error("TotalSharesProvisionedCapacityExceedsAccountLimit", 400,
          "The capacity of all shares would exceed the limit of the account."),
    Error("TotalSharesProvisionedIopsExceedsAccountLimit", 400,
          "The IOPS of all shares would exceed the limit of the account."),
)

_DFS: Final = (
    Error("ContentLengthMustBeZero", 400, "The Content-Length request header must be zero."),
    Error("DestinationPathIsBeingDeleted", 409,
          "The specified destination path is marked to be deleted."),
    Error("FilesystemAlreadyExists", 409, "The specified filesystem already exists."),
    Error("FilesystemBeingDeleted", 409, "The specified filesystem is being deleted."),
    Error("FilesystemNotFound", 404, "The specified filesystem does not exist."),
    Error("HierarchicalNamespaceNotEnabled", 400,
          "This operation is only supported on a hierarchical namespace account."),
    Error("InvalidDestinationPath", 409,
          "The specified path, or an element of the path, exists and its resource type is invalid "
          "for this operation."),
    Error("InvalidFlushOperation", 409,
          "The resource was created or modified by the Blob Service API and cannot be written to "
          "by the Data Lake Storage Service API."),
    Error("InvalidFlushPosition", 400,
          "The uploaded data is not contiguous or the position query parameter value is not equal "
          "to the length of the file after appending the uploaded data."),
    Error("InvalidPropertyName", 400,
          "A property name cannot be empty or contain illegal characters."),
    Error("InvalidRenameSourcePath", 409,
          "The source directory cannot be the same as the destination directory, nor can the "
          "destination be a subdirectory of the source directory."),
    Error("InvalidSourceOrDestinationResourceType", 409,
          "The source and destination resource type must be identical."),
    Error("InvalidSourceUri", 400, "The source URI is invalid."),
    Error("LeaseIdMismatch", 412,
          "The lease ID specified did not match the lease ID for the path."),
    Error("LeaseIsAlreadyBroken", 409,
          "The lease has already been broken and cannot be broken again."),
    Error("LeaseNameMismatch", 409,
          "The lease name specified did not match the existing lease name."),
    Error("LeaseNotPresent", 412, "There is currently no lease on the path."),
    Error("PathAlreadyExists", 409, "The specified path already exists."),
    Error("PathConflict", 409,
          "The specified path, or an element of the path, exists and its resource type is invalid "
          "for this operation."),
    Error("PathNotFound", 404, "The specified path does not exist."),
    Error("RenameDestinationParentPathNotFound", 404,
          "The parent directory of the destination path does not exist."),
    Error("SourcePathIsBeingDeleted", 409, "The specified source path is marked to be deleted."),
    Error("SourcePathNotFound", 404, "The source path for a rename operation does not exist."),
    Error("UnsupportedRestVersion", 400, "The specified Rest Version is unsupported."),
)
# fmt: on


def _by_code(*groups: tuple[Error, ...]) -> dict[str, Error]:
    """Index the rows; two rows for one code are a mistake in this file."""
    rows: dict[str, Error] = {}
    for group in groups:
        for row in group:
            if row.code in rows:
                raise ValueError(f"two rows for the error code {row.code}")
            rows[row.code] = row
    return rows


ERRORS: Final[dict[str, Error]] = _by_code(_COMMON, _SHARED, _BLOB, _QUEUE, _TABLE, _FILE, _DFS)

# The row holds the status of every service that is not named here.
STATUS_BY_SERVICE: Final[dict[tuple[str, str], int]] = {
    ("file", "FeatureVersionMismatch"): 400,
    ("file", "PreviousSnapshotNotFound"): 404,
}

# Other statuses that responses may have.
OTHER_STATUSES: Final[dict[str, frozenset[int]]] = {
    # Reads answer an unmet If-None-Match or If-Modified-Since with "not modified".
    "ConditionNotMet": frozenset({304}),
    # A bearer token that is missing a scope, expired or not acceptable is challenged anew.
    "InvalidAuthenticationInfo": frozenset({401}),
    # A copy repeats the status that its source answered.
    "CannotVerifyCopySource": frozenset({304, 400, 401, 403, 404, 409, 412, 416}),
}


def http_status(code: str, service: str) -> int:
    """Returns the usual HTTP status of a code in a service: blob, queue, table, file or dfs."""
    return STATUS_BY_SERVICE.get((service, code), ERRORS[code].status)


class Refusal(msgspec.Struct, frozen=True, array_like=True):
    """A refusal of a request by the rules.

    The facts explain it: the condition that failed, the value that was sent, the current value, the
    state of the lease and its end. They never contain secrets or lease ids. Responses include them
    only for callers who may read the object.
    """

    code: str
    facts: dict[str, str | int] = {}
    subject: str = ""
    """The kind of resource, if the message of the row is about blobs or containers."""
    message_override: str = ""
    """The message of the service, if it is more precise than that of the row."""
    nt_status_override: int | None = None
    """The NTSTATUS, if it is more precise than that of the row."""

    def __post_init__(self) -> None:
        if self.code not in ERRORS:
            raise ValueError(f"no row for the error code {self.code}")

    @property
    def error(self) -> Error:
        return ERRORS[self.code]

    @property
    def nt_status(self) -> int | None:
        """The NTSTATUS of the refusal; None: there is no equivalent in SMB."""
        return self.error.nt_status if self.nt_status_override is None else self.nt_status_override

    @property
    def message(self) -> str:
        message = self.message_override or self.error.message
        if not self.subject:
            return message
        return message.replace("blob", self.subject).replace("container", self.subject)
