//! What can be set, and where things are: `kvmad.conf`, the environment, OpenNebula's rc files, the paths of the
//! standard layout and of `ONE_LOCATION`, and the set-up of the driver's own log.

pub mod docs;
pub mod load;
pub mod log;
pub mod notice;
pub mod paths;
pub mod rc;
pub mod table;
pub mod value;

pub use load::{Flaw, FlawKind, SettingsError};
pub use notice::Notice;
pub use paths::{CoreConfig, Paths, REMOTE_DIR};
pub use table::{Action, Agent, Cloud, Host, Im, Log, Mad, SECTIONS, Setting, Settings, TABLE};
pub use value::{Folder, Percent, Size};
