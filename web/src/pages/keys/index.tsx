import { Button } from "@mantine/core";
import { IconPlus } from "@tabler/icons-react";
import { ApiKeyService } from "../../../../gen/webhook/v1/api_key_pb.ts";
import { useAllPages } from "../../api/use-all-pages.ts";
import { PageTitle } from "../../parts/layout/page-title.tsx";
import { useUrlFilters } from "../../parts/lists/use-url-filters.ts";
import { Failure } from "../../parts/status/failure.tsx";
import { Loading } from "../../parts/status/loading.tsx";
import { CreateKey } from "./dialogs/create-key.tsx";
import { QuotasDialog } from "./dialogs/quotas-dialog.tsx";
import { RemoveKey } from "./dialogs/remove-key.tsx";
import { RevokeKey } from "./dialogs/revoke-key.tsx";
import { RotateKey } from "./dialogs/rotate-key.tsx";
import { SecretDialog } from "./dialogs/secret-dialog.tsx";
import { FilteredKeys } from "./list/filtered-keys.tsx";
import { KEY_FILTERS, KeyFilters } from "./list/key-filters.tsx";
import { useKeyDialogs } from "./use-key-dialogs.ts";

/** The interval between refreshes, in milliseconds. */
const REFRESH_MS = 30_000;

/** The keys that calls are made with. */
export default function KeysPage() {
  const dialogs = useKeyDialogs();
  const options = { enabled: !dialogs.readsNothing, refreshMs: REFRESH_MS };
  const list = useAllPages(ApiKeyService.method.listApiKeys, {}, options);
  const apps = useAllPages(ApiKeyService.method.listInstalledApps, {}, options);
  const [filters, change] = useUrlFilters(KEY_FILTERS);
  const isOwn = dialogs.apiKey?.id === dialogs.ownId;
  const error = list.error ?? apps.error;
  const isRead = list.data !== undefined && apps.data !== undefined;

  return (
    <>
      <PageTitle
        title="API keys"
        compact
        description="Keys authenticate API calls. Each key has permissions and owns the webhooks it registers."
        actions={
          <Button
            leftSection={<IconPlus size={16} />}
            disabled={!isRead}
            onClick={() => dialogs.ask("create")}
          >
            New key
          </Button>
        }
      />
      {error && (
        <Failure
          error={error}
          title="Could not load the keys"
          onRetry={() => void Promise.all([list.refetch(), apps.refetch()])}
          my="sm"
        />
      )}
      {isRead ? (
        <>
          <KeyFilters filters={filters} apps={apps.data.installedApps} onChange={change} />
          <FilteredKeys
            keys={list.data.apiKeys}
            apps={apps.data.installedApps}
            filters={filters}
            onClear={() => change({ search: "", state: "", app: "" })}
            own={dialogs.own}
            onCreate={() => dialogs.ask("create")}
            onQuotas={(key) => dialogs.ask("quotas", key)}
            onRotate={(key) => dialogs.ask("rotate", key)}
            onRevoke={(key) => dialogs.ask("revoke", key)}
            onRemove={(key) => dialogs.ask("remove", key)}
          />
        </>
      ) : (
        !error && <Loading lines={8} height={56} />
      )}
      <CreateKey
        opened={dialogs.question === "create"}
        onClose={dialogs.close}
        apps={apps.data?.installedApps ?? []}
        appId={dialogs.own?.installedApplicationId ?? filters.app}
        own={dialogs.own}
        onCreated={dialogs.created}
      />
      <QuotasDialog opened={dialogs.question === "quotas"} onClose={dialogs.close} apiKey={dialogs.apiKey} />
      <RotateKey
        opened={dialogs.question === "rotate"}
        onClose={dialogs.close}
        apiKey={dialogs.apiKey}
        isOwn={isOwn}
        onRotate={dialogs.rotate}
      />
      <RevokeKey
        opened={dialogs.question === "revoke"}
        onClose={dialogs.close}
        apiKey={dialogs.apiKey}
        keys={list.data?.apiKeys ?? []}
        isOwn={isOwn}
        onRevoked={dialogs.revoked}
      />
      <RemoveKey opened={dialogs.question === "remove"} onClose={dialogs.close} apiKey={dialogs.apiKey} />
      <SecretDialog shown={dialogs.secret} onClose={dialogs.forgetSecret} />
    </>
  );
}
