//! The gateway's role: it adds rows and reads them, and can do nothing else.

use sqlx::{AssertSqlSafe, PgConnection};

use super::{
    PostgresError,
    error::{UNDEFINED_OBJECT, code},
};

/// All that it gets. Partitions have no grants of their own: rows go through `audit`, whose trigger
/// keeps the sums of `audit_usage`.
const GRANTS: &str = "
    GRANT USAGE ON SCHEMA tollgate TO {role};
    GRANT SELECT ON ALL TABLES IN SCHEMA tollgate TO {role};
    GRANT SELECT ON ALL SEQUENCES IN SCHEMA tollgate TO {role};
    GRANT INSERT ON tollgate.audit, tollgate.audit_content, tollgate.audit_closed,
        tollgate.audit_dead_letter TO {role};
    GRANT EXECUTE ON FUNCTION tollgate.make_partitions, tollgate.mark_swept TO {role};
";

/// Gives `role` what a gateway needs. May be done again.
pub(super) async fn grant(owner: &mut PgConnection, role: &str) -> Result<(), PostgresError> {
    let quoted = format!("\"{}\"", role.replace('"', "\"\""));
    let grants = AssertSqlSafe(GRANTS.replace("{role}", &quoted));
    match sqlx::raw_sql(grants).execute(owner).await {
        Err(error) if code(&error).as_deref() == Some(UNDEFINED_OBJECT) => {
            Err(PostgresError::NoRole { role: role.to_owned() })
        }
        granted => Ok(granted.map(drop)?),
    }
}
